package computer

import "time"

// AppendChunk appends a chunk of a PNG.
func AppendChunk(to []byte, name string, data []byte) []byte { return chunk(to, name, data) }

// SetAppTime sets how long apps may take to answer with their cards. Call it before they are asked.
func (c *Computer) SetAppTime(d time.Duration) {
	for _, f := range c.apps {
		f.wait = d
	}
}
