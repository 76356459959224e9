package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds one event of a stream.
const maxEvent = 16 << 20

var errLongEvent = errors.New("an event of the stream is too long")

// events reads server-sent events. name is "" where none was given.
func events(r io.Reader, each func(name string, data []byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var name string
	var data []byte
	var any bool
	for {
		line, err := readLine(br)
		if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
			if errors.Is(err, io.EOF) {
				return nil // an event without its empty line is not one
			}
			return err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0:
			if any {
				if err := each(name, data); err != nil {
					return err
				}
			}
			name, data, any = "", nil, false
		case string(field) == "event":
			name = string(value)
		case string(field) == "data":
			if any {
				data = append(data, '\n')
			}
			if data = append(data, value...); len(data) > maxEvent {
				return errLongEvent
			}
			any = true
		}
	}
}

// readLine reads one line without its end, whichever of the three it is but a lone CR.
func readLine(br *bufio.Reader) ([]byte, error) {
	var long []byte
	for {
		part, err := br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) > maxEvent {
				return nil, errLongEvent
			}
			continue
		case long != nil:
			part = append(long, part...)
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(part, []byte("\n")), []byte("\r")), err
	}
}
