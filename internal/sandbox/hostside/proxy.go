package hostside

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"agentenv.internal/agentenv/internal/guest"
)

// ProxyFrom reads HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in either case, from an environment. Its errors never hold a value: those may have
// passwords in them.
func ProxyFrom(env func(string) (string, bool)) (guest.Proxy, error) {
	get := func(name string) string {
		for _, n := range []string{name, strings.ToLower(name)} {
			if v, ok := env(n); ok && v != "" {
				return v
			}
		}
		return ""
	}
	var p guest.Proxy
	var errs []error
	for _, way := range []struct {
		name string
		to   **guest.ProxyServer
	}{{"HTTP_PROXY", &p.Plain}, {"HTTPS_PROXY", &p.Secure}} {
		if v := get(way.name); v != "" {
			s, err := proxyServer(v)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", way.name, err))
			}
			*way.to = s
		}
	}
	if p.Plain == nil && p.Secure == nil {
		return guest.Proxy{}, errors.Join(errs...)
	}
	for e := range strings.SplitSeq(get("NO_PROXY"), ",") {
		if e = strings.TrimSpace(e); e != "" {
			p.Except = append(p.Except, e)
		}
	}
	return p, errors.Join(errs...)
}

func proxyServer(text string) (*guest.ProxyServer, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("it is no URL such as http://proxy.example.org:3128")
	case u.Scheme != "http":
		return nil, fmt.Errorf("sandboxes can't use a proxy that is spoken to in %s; name one with http://", u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	s := &guest.ProxyServer{Addr: net.JoinHostPort(u.Hostname(), port)}
	if u.User != nil {
		password, _ := u.User.Password()
		s.Auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	return s, nil
}
