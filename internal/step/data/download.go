package data

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/internal/step"
)

const (
	// maxDownload bounds one download.
	maxDownload = 4 << 30
	// maxRedirects is how often a download may be sent elsewhere.
	maxRedirects = 10
	// downloadTries and their pauses outlast a minute without a network. Pauses double from the first one.
	downloadTries = 7
	firstPause    = time.Second
	// maxPause is the longest pause that a server may ask for.
	maxPause = time.Minute
	// silence ends an attempt in which nothing comes.
	silence = time.Minute
)

// Downloads gets files by their URLs, from this machine and not from a sandbox. What runs in a sandbox chooses nothing of it, but a bundle does: so addresses
// of this machine and of private networks are refused, at the moment of connecting and after every redirect.
type Downloads struct {
	client *http.Client
	max    int64
	pause  func(ctx context.Context, d time.Duration) error
}

// NewDownloads makes them. private lets them reach this machine and private networks.
func NewDownloads(private bool) *Downloads {
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	if !private {
		d.Control = publicOnly
	}
	return &Downloads{max: maxDownload, pause: sleep.For, client: &http.Client{
		Transport: &http.Transport{
			// No proxy: it would connect for us, to whatever it is asked for.
			DialContext: d.DialContext, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: silence, DisableKeepAlives: true,
			DisableCompression: true, // the bytes are kept as they are
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) >= maxRedirects {
				return fmt.Errorf("redirected more than %d times", maxRedirects)
			}
			return checkURL(r.URL)
		},
	}}
}

// errPrivate: the address is of this machine or of a private network.
var errPrivate = errors.New("leads to an address of this machine or of a private network")

// publicOnly refuses to connect to what is not a public address.
func publicOnly(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !public(at.Addr()) {
		return errPrivate
	}
	return nil
}

// reserved are ranges that netip's own words don't cover.
var reserved = [...]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	// Those that stand for IPv4 addresses, which may be private ones.
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("::/96"),
}

func public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, p := range reserved {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// checkURL refuses what is no web address.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%s is no http or https URL", diag.Repr(shown(u)))
	case u.Hostname() == "":
		return fmt.Errorf("%s names no host", diag.Repr(shown(u)))
	}
	return nil
}

// shown is a URL without what may be secret: user, password, query.
func shown(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Check refuses what is no URL of a file on the web.
func (d *Downloads) Check(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("this is no URL") // the error would repeat all of it
	}
	return checkURL(u)
}

// Get downloads a URL into an unnamed file, which the caller closes. The error is typed.
func (d *Downloads) Get(ctx context.Context, text string) (*os.File, int64, error) {
	return d.get(ctx, text)
}

// get is Get.
func (d *Downloads) get(ctx context.Context, text string) (*os.File, int64, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, 0, step.Errorf("DownloadError", "this is no URL")
	}
	if err := checkURL(u); err != nil {
		return nil, 0, &step.Error{Type: "DownloadError", Err: err}
	}
	f, err := unnamed()
	if err != nil {
		return nil, 0, step.Infra(fmt.Errorf("make room for a download: %w", err))
	}
	wait := firstPause
	for try := 1; ; try++ {
		n, asked, err := d.attempt(ctx, u, f)
		if err == nil {
			return f, n, nil
		}
		again := step.IsInfra(err) && try < downloadTries && ctx.Err() == nil
		if again {
			again = d.pause(ctx, max(wait, min(asked, maxPause))) == nil
		}
		if !again {
			_ = f.Close()
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return nil, 0, err
		}
		wait *= 2
	}
}

// attempt is one request. What the network or the server is to blame for is an infra fault, with the pause that the server asks for.
func (d *Downloads) attempt(ctx context.Context, u *url.URL, f *os.File) (n int64, asked time.Duration, err error) {
	fail := func(err error) error {
		return &step.Error{Type: "DownloadError", Err: fmt.Errorf("%s: %w", shown(u), err)}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, 0, fail(errors.New("can't be asked for"))
	}
	req.Header.Set("User-Agent", "agent-env")
	resp, err := d.client.Do(req)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err // without the whole URL
		}
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted || errors.Is(err, errPrivate) || resp != nil {
			return 0, 0, fail(err)
		}
		return 0, 0, step.Infra(fail(err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= 500:
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is answered by the usual pause
		return 0, time.Duration(max(seconds, 0)) * time.Second, step.Infra(fail(errors.New(resp.Status)))
	case resp.StatusCode != http.StatusOK:
		return 0, 0, fail(errors.New(resp.Status))
	case resp.ContentLength > d.max:
		return 0, 0, fail(fmt.Errorf("has %d bytes, more than %d", resp.ContentLength, d.max))
	}
	if err := errors.Join(f.Truncate(0), rewind(f)); err != nil {
		return 0, 0, step.Infra(err)
	}
	quiet := time.AfterFunc(silence, stop)
	defer quiet.Stop()
	body := &sourceReader{r: &lively{io.LimitReader(resp.Body, d.max+1), quiet}}
	n, err = io.Copy(f, body)
	switch {
	case body.err != nil:
		return 0, 0, step.Infra(fail(body.err))
	case err != nil:
		return 0, 0, step.Infra(fmt.Errorf("write a download: %w", err))
	case n > d.max:
		return 0, 0, fail(fmt.Errorf("has more than %d bytes", d.max))
	}
	return n, 0, nil
}

// lively puts the end of a transfer off while something comes.
type lively struct {
	r     io.Reader
	quiet *time.Timer
}

func (l *lively) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if n > 0 {
		l.quiet.Reset(silence)
	}
	return n, err
}

// unnamed is a file that is gone when it is closed, however this process ends.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "agent-env-download-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func rewind(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}
