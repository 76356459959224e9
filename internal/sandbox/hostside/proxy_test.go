package hostside_test

import (
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

func proxyEnv(m map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := m[name]
		return v, ok
	}
}

func TestProxyFrom(t *testing.T) {
	p, err := hostside.ProxyFrom(proxyEnv(map[string]string{
		"HTTPS_PROXY": "http://user:s3cret@proxy.test:3128", "http_proxy": "other.test", "NO_PROXY": "localhost, .corp.test,,10.0.0.0/8",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if p.Secure == nil || p.Secure.Addr != "proxy.test:3128" || p.Secure.Auth != "Basic dXNlcjpzM2NyZXQ=" || p.Plain == nil || p.Plain.Addr != "other.test:80" || p.Plain.Auth != "" {
		t.Errorf("%+v %+v", p.Plain, p.Secure)
	}
	if !slices.Equal(p.Except, []string{"localhost", ".corp.test", "10.0.0.0/8"}) {
		t.Errorf("%q", p.Except)
	}
	if p, err := hostside.ProxyFrom(proxyEnv(map[string]string{"NO_PROXY": "*", "HTTP_PROXY": ""})); err != nil || p.Plain != nil || p.Secure != nil || p.Except != nil {
		t.Errorf("no proxy: %+v, %v", p, err)
	}
	for _, bad := range []string{"https://u:s3cret@proxy.test", "socks5://u:s3cret@proxy.test:1", "http://u:s3cret@", "http://u:s3cret@host:port", "\x00s3cret"} {
		_, err := hostside.ProxyFrom(proxyEnv(map[string]string{"HTTPS_PROXY": bad}))
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "HTTPS_PROXY: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzProxyFrom: what an environment holds is read or refused, and a refusal tells nothing of it.
func FuzzProxyFrom(f *testing.F) {
	for _, s := range []string{"http://proxy.test:3128", "proxy.test", "https://x", "http://[::1]:1", "%", "http://a b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := hostside.ProxyFrom(proxyEnv(map[string]string{"HTTPS_PROXY": text}))
		if err == nil && text != "" && (p.Secure == nil || !strings.Contains(p.Secure.Addr, ":")) {
			t.Fatalf("%q gives %+v", text, p.Secure)
		}
	})
}
