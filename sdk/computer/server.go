package computer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/env"
)

// Options are what New is given beside a driver. The zero value works.
type Options struct {
	Name      string                      // of the environment, computer unless set; ENVIRONMENT_NAME wins
	Settings  *Settings                   // nil: read from SettingsVariable
	Apps      []App                       // nil: read from AppsVariable
	Home      string                      // of the session user; "" is $HOME
	Log       *slog.Logger                // nil: tells nothing
	Lookup    func(string) (string, bool) // nil: os.LookupEnv
	EncodePNG func(Image) ([]byte, error) // nil: the standard library's, which is slower; must be exact
	Identity  func(env.Call) string       // who calls; nil: everybody is one caller
	Client    *http.Client                // that fetches files of data/add, and reads and writes what grants lead to; nil: one that follows redirects to https alone, for at most 60 s
	Supports  []Support                   // the platforms that the driver is made for, on the card; nil: this system
	Platform  *Platform                   // nil: the one this process runs on
	Skill     *Skill                      // that the computer serves; nil: none
}

// Skill is what agents should know to use the computer.
type Skill struct {
	Name, Description string
	Folder            fs.FS // holds SKILL.md
}

// Computer is a driver as a server. Its methods may be called at the same time.
type Computer struct {
	driver   Driver
	pointer  Pointer   // nil: none
	keyboard Keyboard  // nil: none
	display  Displayer // nil: none
	runner   Runner
	writer   FileWriter
	features Features
	supports []Support
	platform Platform
	keys     *keyNames
	identity func(env.Call) string
	encode   func(Image) ([]byte, error)
	home     string
	apps     []*front
	client   *http.Client
	log      *slog.Logger
	env      *env.Env

	queue  queue
	frames frames
	holds  holds
	execs  execs

	mu       sync.Mutex // guards what follows
	settings Settings
	ready    bool

	checking sync.Mutex // held while the checks run for a tool
	watchers atomic.Int32
	ending   chan struct{} // closed: those who watch the screen are let go
	ended    sync.Once
	closing  chan struct{}
	closed   sync.Once
	work     sync.WaitGroup // what goes on beside calls
}

// New makes a server of a driver. It tells everything that is wrong with the options and the variables that it reads. Who calls it calls Close.
func New(d Driver, o Options) (*Computer, error) {
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	c := &Computer{driver: d, features: d.Features().withDefaults(), supports: o.Supports, identity: o.Identity, encode: o.EncodePNG, home: o.Home, client: o.Client, log: o.Log, ending: make(chan struct{}), closing: make(chan struct{})}
	c.pointer, _ = d.(Pointer)
	c.keyboard, _ = d.(Keyboard)
	if c.display, _ = d.(Displayer); len(c.features.Modes) == 0 {
		c.display = nil
	}
	if c.identity == nil {
		c.identity = func(env.Call) string { return "default" }
	}
	if c.encode == nil {
		c.encode = encodePNG
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.client == nil {
		c.client = home.Client()
	}
	var errs []error
	errs = append(errs, c.features.check(), c.configure(o, lookup))
	c.keys = newKeyNames(c.features.Keys)
	c.env = env.New(cmp.Or(o.Name, "computer"), env.WithLookup(lookup), env.WithLog(c.log), env.WithToolAccess(), env.WithHTTPClient(home.Granted(c.client)))
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("put the computer %s together: %w", c.env.Name(), err)
	}
	c.choose()
	c.addTools()
	c.addExtensions()
	c.addData()
	c.addLive()
	if k := o.Skill; k != nil {
		c.env.ServeSkill(k.Name, k.Description, k.Folder)
	}
	c.addApps()
	return c, nil
}

// configure reads what whoever runs the computer chose.
func (c *Computer) configure(o Options, lookup func(string) (string, bool)) error {
	var errs []error
	if o.Settings != nil {
		c.settings = *o.Settings
		errs = append(errs, c.settings.Check())
	} else {
		text, _ := lookup(SettingsVariable)
		s, err := ParseSettings(text)
		c.settings = s
		errs = append(errs, err)
	}
	if c.settings.Layout != "" && !slices.Contains(c.features.Layouts, c.settings.Layout) {
		errs = append(errs, fmt.Errorf("%s: layout: this computer has no layout %q", SettingsVariable, c.settings.Layout))
	}
	apps := o.Apps
	if apps == nil {
		text, _ := lookup(AppsVariable)
		var err error
		apps, err = ParseApps(text)
		errs = append(errs, err)
	}
	for _, a := range apps {
		c.apps = append(c.apps, newFront(a))
	}
	if c.home == "" {
		c.home, _ = lookup("HOME")
	}
	if c.home == "" {
		errs = append(errs, errors.New("HOME: not set"))
	}
	if c.platform = detectPlatform(lookup); o.Platform != nil {
		c.platform = *o.Platform
	}
	return errors.Join(errs...)
}

func (f *Features) check() error {
	var errs []error
	if !slices.Contains(f.Buttons, Left) {
		errs = append(errs, errors.New("features: buttons lack left"))
	}
	for _, l := range []struct {
		name       string
		value, low int
	}{{"max_click_count", f.MaxClickCount, 1}, {"max_text_length", f.MaxTextLength, 1}, {"max_wait_ms", f.MaxWait, 60000}, {"max_drag_points", f.MaxDragPoints, 2}, {"max_duration_ms", f.MaxDuration, 0}, {"max_key_repeat", f.MaxKeyRepeat, 1}, {"max_scroll_amount", f.MaxScrollAmount, 1}} {
		if l.value < l.low {
			errs = append(errs, fmt.Errorf("features: %s is %d, want at least %d", l.name, l.value, l.low))
		}
	}
	return errors.Join(errs...)
}

// choose takes what the driver doesn't bring from this machine.
func (c *Computer) choose() {
	var ok bool
	if c.runner, ok = c.driver.(Runner); !ok {
		c.runner = newSession(c.home, &c.work, c.closing)
	}
	if c.writer, ok = c.driver.(FileWriter); !ok {
		c.writer = &homeFiles{c.home}
	}
}

// Name is the environment's.
func (c *Computer) Name() string { return c.env.Name() }

// Handler is the computer over HTTP. Call it once.
func (c *Computer) Handler() (http.Handler, error) { return c.env.Handler() }

// Serve serves the computer at MCP_HOST and MCP_PORT until ctx ends, and closes it.
func (c *Computer) Serve(ctx context.Context) error {
	addr, err := c.env.Address()
	if err != nil {
		return errors.Join(err, c.Close(ctx))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return errors.Join(fmt.Errorf("serve the computer %s: %w", c.Name(), err), c.Close(ctx))
	}
	return c.ServeListener(ctx, l)
}

// ServeListener is Serve on a listener, which it closes.
func (c *Computer) ServeListener(ctx context.Context, l net.Listener) error {
	defer context.AfterFunc(ctx, c.endWatching)() // else the server would wait for them
	err := c.env.ServeListener(ctx, l)
	return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}

// Close ends sessions, releases keys that are held, kills commands that run and waits for all that. It may be called again.
func (c *Computer) Close(ctx context.Context) error {
	c.endWatching()
	err := c.env.Close(ctx)
	c.closed.Do(func() { close(c.closing) })
	c.work.Wait()
	return err
}

func (c *Computer) endWatching() { c.ended.Do(func() { close(c.ending) }) }

// chosen is the settings as they are now.
func (c *Computer) chosen() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings
}

func (s *Settings) timing() Timing {
	return Timing{time.Duration(s.TapHold) * time.Millisecond, time.Duration(s.TypeDelay) * time.Millisecond}
}

func (s *Settings) wait() time.Duration { return time.Duration(s.QueueWait * float64(time.Second)) }

// displayNow is the display as it is.
func (c *Computer) displayNow(ctx context.Context) (Display, error) {
	d, err := c.driver.Display(ctx)
	if err == nil && !d.valid() {
		err = fmt.Errorf("the driver tells of a display of %s", d)
	}
	return d, coded(ctx, Internal, err)
}

// capture is a new frame of the whole screen. What was delivered is counted before: input that lands meanwhile may not be on it.
func (c *Computer) capture(ctx context.Context) (*frame, error) {
	f, pixels, err := c.shoot(ctx)
	if err != nil {
		return nil, err
	}
	if f.png = pixels.Data; pixels.Format != PNG {
		if f.png, err = c.encode(pixels); err != nil {
			return nil, coded(ctx, Internal, err)
		}
	}
	c.frames.add(f, c.caller(ctx), pixels)
	return f, nil
}

// shoot captures the screen and checks that it is what the display says.
func (c *Computer) shoot(ctx context.Context) (*frame, Image, error) {
	f := &frame{inputs: c.queue.snapshot()}
	var err error
	if f.display, err = c.displayNow(ctx); err != nil {
		return nil, Image{}, err
	}
	f.at = time.Now()
	pixels, err := c.pixels(ctx)
	if err != nil {
		return nil, Image{}, coded(ctx, Internal, err)
	}
	if f.width, f.height, err = pixels.size(); err != nil {
		return nil, Image{}, coded(ctx, Internal, err)
	}
	if w, h := scaled(f.display.Width, f.display.Scale), scaled(f.display.Height, f.display.Scale); f.width != w || f.height != h {
		return nil, Image{}, Fail(Internal, "the capture is %d×%d, and the display is %s", f.width, f.height, f.display)
	}
	f.rootWidth, f.rootHeight = f.width, f.height
	return f, pixels, nil
}

// pixels captures the screen, into memory that it has where the driver can.
func (c *Computer) pixels(ctx context.Context) (Image, error) {
	if d, ok := c.driver.(Recapturer); ok {
		return d.CaptureInto(ctx, c.frames.memory())
	}
	return c.driver.Capture(ctx)
}

func (c *Computer) caller(ctx context.Context) string { return c.identity(env.CallFrom(ctx)) }

// checks are what has to hold before the computer is ready. They send no input.
func (c *Computer) checks(ctx context.Context) []Check {
	var out []Check
	d, err := c.displayNow(ctx)
	if err != nil {
		out = append(out, Check{"display", false, said(err)}, Check{"capture", false, "the display didn't answer"})
	} else {
		out = append(out, Check{"display", true, d.String()})
		f, pixels, err := c.shoot(ctx)
		if err != nil {
			out = append(out, Check{"capture", false, said(err)})
		} else {
			if _, ok := c.driver.(Recapturer); ok {
				c.frames.keep(pixels)
			}
			out = append(out, Check{"capture", true, fmt.Sprintf("%d×%d", f.width, f.height)})
		}
	}
	if more, ok := c.driver.(Checker); ok {
		out = append(out, more.Checks(ctx)...)
	}
	out = append(out, c.appChecks(ctx)...)
	if !slices.ContainsFunc(out, func(k Check) bool { return !k.OK }) {
		c.mu.Lock()
		c.ready = true
		c.mu.Unlock()
	}
	return out
}

// said is an error's text without its code.
func said(err error) string {
	if f, ok := errors.AsType[*env.Failure](err); ok {
		return f.Message
	}
	return err.Error()
}

func (c *Computer) wasReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready
}

// ensureReady refuses until all checks have passed once.
func (c *Computer) ensureReady(ctx context.Context) error {
	if c.wasReady() {
		return nil
	}
	c.checking.Lock()
	defer c.checking.Unlock()
	if c.wasReady() {
		return nil
	}
	var failed string
	for _, k := range c.checks(ctx) {
		if !k.OK {
			failed += "; " + k.Name + ": " + k.Detail
		}
	}
	if failed == "" {
		return nil
	}
	return Fail(DeviceUnavailable, "the computer isn't ready%s", failed)
}
