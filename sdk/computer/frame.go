package computer

import (
	"fmt"
	"image"
	"math"
	"sync"
	"time"
)

// keptFrames is how many frames may be referred to.
const keptFrames = 64

// frame is a picture that was answered.
type frame struct {
	id            string
	width, height int
	display       Display
	parent        string
	at            time.Time
	png           []byte
	originX       int // of a crop, in the picture of the whole screen
	originY       int
	rootWidth     int // of the picture of the whole screen
	rootHeight    int
	inputs        map[string]int // what had been delivered when it was captured
}

// FrameResult tells of a frame, as tools answer it.
type FrameResult struct {
	FrameID       string  `json:"frame_id" jsonschema:"What later calls name this frame by."`
	Width         int     `json:"width" jsonschema:"Of the image, in pixels."`
	Height        int     `json:"height" jsonschema:"Of the image, in pixels."`
	Display       Display `json:"display"`
	ParentFrameID string  `json:"parent_frame_id,omitempty" jsonschema:"The frame that this one is a part of."`
	CapturedAt    string  `json:"captured_at" jsonschema:"When, in UTC."`
}

func (f *frame) result() FrameResult {
	return FrameResult{f.id, f.width, f.height, f.display, f.parent, f.at.UTC().Format("2006-01-02T15:04:05.000000Z")}
}

// toScreen is the pixel of the screen under a point of the frame.
func (f *frame) toScreen(x, y float64) Point {
	return Point{
		int(math.Floor((float64(f.originX) + x) * float64(f.display.Width) / float64(f.rootWidth))),
		int(math.Floor((float64(f.originY) + y) * float64(f.display.Height) / float64(f.rootHeight))),
	}
}

// fromScreen is where a pixel of the screen is in the frame, which it may be outside of.
func (f *frame) fromScreen(p Point) (x, y float64) {
	return float64(p.X)*float64(f.rootWidth)/float64(f.display.Width) - float64(f.originX),
		float64(p.Y)*float64(f.rootHeight)/float64(f.display.Height) - float64(f.originY)
}

func (f *frame) contains(x, y float64) bool {
	return x >= 0 && y >= 0 && x < float64(f.width) && y < float64(f.height)
}

// space is what numbers of a point mean.
type space struct {
	norm  bool
	scale int
}

// point is a point in the frame's pixels.
func (f *frame) point(x, y float64, s space) (fx, fy float64, err error) {
	if s.norm {
		limit := float64(s.scale)
		if !(x >= 0 && x <= limit && y >= 0 && y <= limit) {
			return 0, 0, Fail(OutOfBounds, "(%g, %g) is outside of 0 to %d", x, y, s.scale)
		}
		return min(x*float64(f.width)/limit, float64(f.width-1)), min(y*float64(f.height)/limit, float64(f.height-1)), nil
	}
	if !f.contains(x, y) {
		return 0, 0, Fail(OutOfBounds, "(%g, %g) is outside of %s, which is %d×%d", x, y, f.id, f.width, f.height)
	}
	return x, y, nil
}

// region is a part of the frame, in its pixels, end exclusive.
func (f *frame) region(r []float64, s space) (image.Rectangle, error) {
	if len(r) != 4 {
		return image.Rectangle{}, Fail(InvalidArgument, "region has 4 numbers: x0, y0, x1, y1")
	}
	x0, y0, x1, y1 := r[0], r[1], r[2], r[3]
	if s.norm {
		kx, ky := float64(f.width)/float64(s.scale), float64(f.height)/float64(s.scale)
		x0, y0, x1, y1 = x0*kx, y0*ky, x1*kx, y1*ky
	}
	w, h := float64(f.width), float64(f.height)
	if !(x0 >= 0 && y0 >= 0 && x0 < x1 && y0 < y1 && x1 <= w && y1 <= h) {
		return image.Rectangle{}, Fail(OutOfBounds, "the region is empty or outside of %s, which is %d×%d", f.id, f.width, f.height)
	}
	return image.Rect(int(math.Floor(x0)), int(math.Floor(y0)), min(int(math.Ceil(x1)), f.width), min(int(math.Ceil(y1)), f.height)), nil
}

// frames are the last pictures, and which of them each caller saw last.
type frames struct {
	mu     sync.Mutex
	count  int
	kept   []*frame // oldest first
	latest map[string]string

	// pixels are those of one frame: of the last that was captured, since most crops are of it. pixelsOf is nil when they are nothing but memory, of
	// which one is enough for captures that come one after another.
	pixelsOf *frame
	pixels   Image
}

// add keeps a frame and names it.
func (s *frames) add(f *frame, caller string, pixels Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	f.id = fmt.Sprintf("f%d", s.count)
	if len(s.kept) == keptFrames {
		copy(s.kept, s.kept[1:])
		s.kept = s.kept[:keptFrames-1]
	}
	s.kept = append(s.kept, f)
	if s.latest == nil {
		s.latest = map[string]string{}
	}
	s.latest[caller] = f.id
	if f.parent == "" {
		s.pixelsOf, s.pixels = f, pixels
	}
}

// get is a frame by its id, or the caller's latest.
func (s *frames) get(id, caller string) (*frame, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == "" {
		if id = s.latest[caller]; id == "" {
			return nil, Fail(StaleFrame, "there is no frame yet").WithHint("call computer_screenshot first")
		}
	}
	for _, f := range s.kept {
		if f.id == id {
			return f, nil
		}
	}
	return nil, Fail(StaleFrame, "the frame %s isn't kept", id).WithHint("take a new screenshot; the last %d frames are kept", keptFrames)
}

// latestOf is the caller's latest frame; nil for none.
func (s *frames) latestOf(caller string) *frame {
	f, err := s.get("", caller)
	if err != nil {
		return nil
	}
	return f
}

// picture is a part of a frame, in its pixels; it shares nothing with the frame.
func (s *frames) picture(f *frame, box image.Rectangle) (*image.RGBA, error) {
	s.mu.Lock()
	var pixels Image
	if s.pixelsOf == f && s.pixels.per() != 0 {
		pixels = s.pixels.part(box, nil) // while nobody captures over it
	}
	s.mu.Unlock()
	if pixels.Data != nil {
		return pixels.pixels()
	}
	all, err := Image{Format: PNG, Data: f.png}.pixels()
	if err != nil {
		return nil, err
	}
	return crop(all, box).pixels()
}

// memory gives away the pixels that are kept, to be captured over; nil when there are none.
func (s *frames) memory() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.pixels.Data
	s.pixelsOf, s.pixels = nil, Image{}
	return b
}

// keep takes memory back that is needed no more.
func (s *frames) keep(pixels Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pixelsOf == nil {
		s.pixels = pixels
	}
}

// current refuses a frame of another display than the one there is.
func (f *frame) current(now Display) error {
	if f.display == now {
		return nil
	}
	return Fail(StaleFrame, "the display is %s, and %s shows one of %s", now, f.id, f.display).WithHint("take a new screenshot")
}
