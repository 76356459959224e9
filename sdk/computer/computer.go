// Package computer is for writing drivers: servers of environments that are a whole desktop, which agents see by screenshots and work with mouse and
// keyboard.
//
// A driver's author implements Driver on whatever shows the desktop, and as many of Pointer, Keyboard, Displayer, Runner, FileWriter and Checker as it
// can. New makes a server of it: tools over MCP, extensions, a data plane on the session user's home, and the card that tells of what there is. The
// server keeps what the protocol asks for whatever the driver is: frames and their coordinates, one input at a time, names of keys, refusals.
//
// The words: a frame is a picture that was answered, with an id that points refer to; a turn is the time in which one input call has the desktop to
// itself; an app is a program on the desktop with a server and a data plane of its own, which the driver fronts at /svc/<app>/.
//
// The package shows no desktop by itself and starts no session; it doesn't authenticate anyone, as package env doesn't.
package computer

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Driver is what every desktop can do. Points are pixels of the screen. Methods may be called at the same time as each other, but inputs (Click,
// Drag, Scroll, Type, Press and those of Pointer, Keyboard and Displayer) come one after another. An input that fails before anything was sent
// returns an error of Fail, any other error counts as one that may have been delivered in part. The Effect may be nil.
type Driver interface {
	// Features tells the limits of this desktop. It is asked once, before anything else.
	Features() Features
	Display(ctx context.Context) (Display, error)
	// Capture is the whole screen, of round(width*scale) by round(height*scale) pixels.
	Capture(ctx context.Context) (Image, error)
	Click(ctx context.Context, c Click) (*Effect, error)
	Drag(ctx context.Context, d Drag) (*Effect, error)
	Scroll(ctx context.Context, s Scroll) (*Effect, error)
	// Type enters text, of which \n is Enter and \t is Tab, without touching the clipboard.
	Type(ctx context.Context, text string, t Timing) (*Effect, error)
	// Press presses keys in order and releases them in reverse.
	Press(ctx context.Context, keys []Key, t Timing) (*Effect, error)
}

// Pointer is a driver that can move the pointer and hold its buttons.
type Pointer interface {
	PointerMove(ctx context.Context, to Point) error
	PointerDown(ctx context.Context, b Button) error
	PointerUp(ctx context.Context, b Button) error
	PointerPosition(ctx context.Context) (Point, error)
}

// Keyboard is a driver that can hold keys.
type Keyboard interface {
	KeyDown(ctx context.Context, keys []Key) error
	KeyUp(ctx context.Context, keys []Key) error
}

// Displayer is a driver that can change the size of its screen to one of Features.Modes.
type Displayer interface {
	SetDisplay(ctx context.Context, d Display) (Display, error)
}

// Runner is a driver that runs commands of the session by other means than as children of this process.
type Runner interface {
	Run(ctx context.Context, c Command) (CommandResult, error)
}

// FileWriter is a driver that writes the session user's files by other means than into a folder of this machine. Paths are relative to the home.
type FileWriter interface {
	WriteFiles(ctx context.Context, files []File) error
}

// Checker is a driver that has more to check before it is ready than its display and a capture.
type Checker interface {
	Checks(ctx context.Context) []Check
}

// Point is a pixel of the screen.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

// Display is the size of the screen in the units that points have; Scale is how many pixels of an image one unit has.
type Display struct {
	Width  int     `json:"width"`
	Height int     `json:"height"`
	Scale  float64 `json:"scale"`
}

func (d Display) valid() bool { return d.Width > 0 && d.Height > 0 && d.Scale > 0 }

func (d Display) String() string {
	if d.Scale == 1 {
		return fmt.Sprintf("%d×%d", d.Width, d.Height)
	}
	return fmt.Sprintf("%d×%d at scale %g", d.Width, d.Height, d.Scale)
}

// Size is a size of the screen that can be set.
type Size struct{ Width, Height int }

// MarshalJSON writes [width, height].
func (s Size) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{s.Width, s.Height}) }

// Button is a button of the pointer.
type Button string

// Buttons.
const (
	Left    Button = "left"
	Right   Button = "right"
	Middle  Button = "middle"
	Back    Button = "back"
	Forward Button = "forward"
)

// Direction is where a view moves through its content.
type Direction string

// Directions.
const (
	Up      Direction = "up"
	Down    Direction = "down"
	ToLeft  Direction = "left"
	ToRight Direction = "right"
)

// Timing is how slow a keyboard is used: how long each key is down, and how long the pause after each character is.
type Timing struct{ Hold, Delay time.Duration }

// Click is Count presses of a button at a point.
type Click struct {
	At        Point
	Button    Button
	Count     int
	Modifiers []Key
}

// Drag is a button held along a path of at least two points.
type Drag struct {
	Path      []Point
	Button    Button
	Duration  time.Duration
	Modifiers []Key
}

// Scroll is Amount notches of the wheel at a point.
type Scroll struct {
	At        Point
	Direction Direction
	Amount    int
	Modifiers []Key
}

// Effect is what a driver noticed of an input; fields that are nil or empty weren't looked at.
type Effect struct {
	FocusChanged  *bool  `json:"focus_changed,omitempty"`
	PointerMoved  *bool  `json:"pointer_moved,omitempty"`
	ClipboardUsed *bool  `json:"clipboard_used,omitempty"`
	Detail        string `json:"detail,omitempty"`
}

// Check is one thing that has to hold before a computer is ready.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Features are the limits of a desktop. Fields that are zero get defaults.
type Features struct {
	Buttons         []Button // holds Left; default Left alone
	MaxClickCount   int      // default 1
	Keys            []Key    // nil: all
	MaxTextLength   int      // characters; default 10000
	MaxWait         int      // ms, at least 60000; default 60000
	MaxDragPoints   int      // at least 2; default 2
	MaxDuration     int      // ms of a drag; default 10000
	MaxKeyRepeat    int      // default 100
	MaxScrollAmount int      // default 100
	Modes           []Size   // sizes that SetDisplay takes
	Layouts         []string // of keyboards; default us
}

func (f Features) withDefaults() Features {
	for _, d := range []struct {
		to    *int
		value int
	}{{&f.MaxClickCount, 1}, {&f.MaxTextLength, 10000}, {&f.MaxWait, 60000}, {&f.MaxDragPoints, 2}, {&f.MaxDuration, 10000}, {&f.MaxKeyRepeat, 100}, {&f.MaxScrollAmount, 100}} {
		if *d.to == 0 {
			*d.to = d.value
		}
	}
	if f.Buttons == nil {
		f.Buttons = []Button{Left}
	}
	if f.Layouts == nil {
		f.Layouts = []string{"us"}
	}
	return f
}
