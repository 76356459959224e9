package computer

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"agentenv.internal/agentenv/sdk/env"
)

// LivePath is where a computer shows its screen as it changes: GET answers multipart/x-mixed-replace, a PNG in each part, which an img of a page shows
// as a film. With the query changes=1 all parts but the first hold what changed alone, as Follow reads them, and each part's headers tell where on the
// screen the picture belongs, how large that is, and when that was. fps says how often it looks, from 0.1 to 30 times a second, 10 unless given.
const LivePath = "/live"

// Headers of the parts at LivePath with changes=1.
const (
	LiveAt     = "Agentenv-At"     // x,y of the picture on the screen
	LiveScreen = "Agentenv-Screen" // WIDTHxHEIGHT
	LiveTime   = "Agentenv-Time"   // RFC 3339, in UTC
)

const (
	liveBoundary = "agentenv-screen"
	mostWatchers = 16
	usualFPS     = 10
	leastFPS     = 0.1
	mostFPS      = 30
)

func (c *Computer) addLive() {
	c.env.Handle("GET "+LivePath, http.HandlerFunc(c.serveLive))
}

// serveLive shows the screen until the caller leaves or the computer closes.
func (c *Computer) serveLive(w http.ResponseWriter, r *http.Request) {
	if !c.env.Sees(r, "computer_screenshot") {
		refuseLive(w, Fail(PermissionDenied, "screenshots are not for this role"))
		return
	}
	fps, changes, wrong := liveQuery(r)
	if wrong != nil {
		refuseLive(w, wrong)
		return
	}
	if c.watchers.Add(1) > mostWatchers {
		c.watchers.Add(-1)
		refuseLive(w, Fail(LimitExceeded, "%d watch this screen already", mostWatchers))
		return
	}
	defer c.watchers.Add(-1)
	h := w.Header()
	h.Set("Content-Type", "multipart/x-mixed-replace; boundary="+liveBoundary)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	// Pages show a part once they have seen the headers of the one after it, so these come at once; those that tell of a change come with it.
	const begin = "--" + liveBoundary + "\r\nContent-Type: image/png\r\n"
	ahead := "\r\n"
	if changes {
		ahead = ""
	}
	if _, err := io.WriteString(w, begin+ahead); err != nil {
		return // the caller left
	}
	flush := http.NewResponseController(w)
	var buf []byte
	for s := range c.Watch(r.Context(), time.Duration(float64(time.Second)/fps)) {
		pixels, head := s.Image, ""
		if changes {
			pixels = s.Image.part(s.Changed, buf)
			buf = pixels.Data
			head = fmt.Sprintf("%s: %d,%d\r\n%s: %dx%d\r\n%s: %s\r\n\r\n", LiveAt, s.Changed.Min.X, s.Changed.Min.Y, LiveScreen, s.Image.Width, s.Image.Height,
				LiveTime, s.At.UTC().Format(time.RFC3339Nano))
		}
		png, err := c.encode(pixels)
		if err != nil {
			c.log.WarnContext(r.Context(), "the screen can't be shown", "error", err)
			return
		}
		if _, err = fmt.Fprintf(w, "%s%s\r\n%s%s", head, png, begin, ahead); err != nil || flush.Flush() != nil {
			return // the caller left
		}
	}
}

// liveQuery reads what the caller of LivePath wants.
func liveQuery(r *http.Request) (fps float64, changes bool, wrong *env.Failure) {
	var err error
	q := r.URL.Query()
	fps = usualFPS
	if v := q.Get("fps"); v != "" {
		if fps, err = strconv.ParseFloat(v, 64); err != nil || !(fps >= leastFPS && fps <= mostFPS) {
			return 0, false, Fail(InvalidArgument, "fps: want a number from %g to %d", leastFPS, mostFPS)
		}
	}
	if v := q.Get("changes"); v != "" {
		if changes, err = strconv.ParseBool(v); err != nil {
			return 0, false, Fail(InvalidArgument, "changes: want 0 or 1")
		}
	}
	return fps, changes, nil
}

// refuseLive answers as extensions do.
func refuseLive(w http.ResponseWriter, f *env.Failure) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_, _ = w.Write(f.Body()) // a client that left needs no answer
}
