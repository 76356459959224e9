package envdb

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "x", "mysql://u:pw-s3cr3t@h/d", "postgresql://u:pw-s3cr3t@h:port/d", "postgresql://u:pw-s3cr3t%zz@h/d"} {
		if _, err := Parse(bad); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	s, err := Parse("postgresql://u:pw@db.example:6432/envs?sslmode=disable")
	if err != nil || s.config.Host != "db.example" || s.config.Port != 6432 {
		t.Errorf("%+v %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("postgresql://u:pw@h:5432/d?sslmode=require&options=-c%20x%3D1")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Parse(text); (s == nil) == (err == nil) {
			t.Error(s, err)
		}
	})
}

// The verifier is what PostgreSQL 15 keeps of the same password and salt.
func TestVerifier(t *testing.T) {
	got, err := verifier("pencil", []byte("0123456789abcdef"))
	if err != nil || !strings.HasPrefix(got, "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$") || len(got) != len("SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$")+44+1+44 {
		t.Error(got, err)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{"Mail-1": "mail_1", "é\"; DROP": "___drop", strings.Repeat("x", 90): strings.Repeat("x", maxName)} {
		if got := plain(name); got != want && !(strings.HasPrefix(name, "é") && strings.HasSuffix(got, "drop") && !strings.ContainsAny(got, "\"; é")) {
			t.Errorf("%q: %q", name, got)
		}
	}
}
