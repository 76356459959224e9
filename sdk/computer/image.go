package computer

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
)

// Format is how an Image is stored.
type Format string

// Formats of images. Those of bytes have rows from the top, without gaps: 3 bytes a pixel of RGB, 4 of the others.
const (
	PNG  Format = "png"
	JPEG Format = "jpeg"
	RGB  Format = "RGB"
	RGBA Format = "RGBA"
	BGRA Format = "BGRA"
	BGRX Format = "BGRX"
)

// Image is a picture. Nobody changes Data once it was returned.
type Image struct {
	Format        Format
	Width, Height int
	Data          []byte
}

// Check tells whether the data fit the format and size; of encoded ones it doesn't look inside.
func (m Image) Check() error {
	per := 0
	switch m.Format {
	case PNG, JPEG:
		if len(m.Data) == 0 {
			return fmt.Errorf("an image in %s is empty", m.Format)
		}
		return nil
	case RGB:
		per = 3
	case RGBA, BGRA, BGRX:
		per = 4
	default:
		return fmt.Errorf("no image format is named %q", m.Format)
	}
	if m.Width <= 0 || m.Height <= 0 || len(m.Data) != m.Width*m.Height*per {
		return fmt.Errorf("an image of %d×%d in %s has %d bytes", m.Width, m.Height, m.Format, len(m.Data))
	}
	return nil
}

// pixels is an opaque RGBA image of any format.
func (m Image) pixels() (*image.RGBA, error) {
	if m.Format == PNG || m.Format == JPEG {
		decode := png.Decode
		if m.Format == JPEG {
			decode = jpeg.Decode
		}
		in, err := decode(bytes.NewReader(m.Data))
		if err != nil {
			return nil, fmt.Errorf("decode a capture: %w", err)
		}
		if out, ok := in.(*image.RGBA); ok && out.Opaque() && out.Rect.Min == (image.Point{}) {
			return out, nil
		}
		out := image.NewRGBA(image.Rect(0, 0, in.Bounds().Dx(), in.Bounds().Dy()))
		at := in.Bounds().Min
		for i := 0; i < len(out.Pix); i += 4 {
			x, y := i/4%out.Rect.Dx(), i/4/out.Rect.Dx()
			r, g, b, _ := in.At(at.X+x, at.Y+y).RGBA()
			out.Pix[i], out.Pix[i+1], out.Pix[i+2], out.Pix[i+3] = byte(r>>8), byte(g>>8), byte(b>>8), 255
		}
		return out, nil
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	out := image.NewRGBA(image.Rect(0, 0, m.Width, m.Height))
	r, b, per := 0, 2, 4
	switch m.Format {
	case BGRA, BGRX:
		r, b = 2, 0
	case RGB:
		per = 3
	default:
	}
	for i, j := 0, 0; j < len(out.Pix); i, j = i+per, j+4 {
		px := m.Data[i : i+3 : i+3]
		to := out.Pix[j : j+4 : j+4]
		to[0], to[1], to[2], to[3] = px[r], px[1], px[b], 255
	}
	return out, nil
}

// size is the size of a picture, whatever its format.
func (m Image) size() (w, h int, err error) {
	if m.Format != PNG && m.Format != JPEG {
		return m.Width, m.Height, m.Check()
	}
	if err := m.Check(); err != nil {
		return 0, 0, err
	}
	decode := png.DecodeConfig
	if m.Format == JPEG {
		decode = jpeg.DecodeConfig
	}
	c, err := decode(bytes.NewReader(m.Data))
	if err != nil {
		return 0, 0, fmt.Errorf("decode a capture: %w", err)
	}
	return c.Width, c.Height, nil
}

// encodePNG is the encoder for drivers that bring none.
func encodePNG(m Image) ([]byte, error) {
	p, err := m.pixels()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&b, p); err != nil {
		return nil, fmt.Errorf("encode a capture: %w", err)
	}
	return b.Bytes(), nil
}

func encodeJPEG(p image.Image, quality int) ([]byte, error) {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, p, &jpeg.Options{Quality: quality}); err != nil {
		return nil, fmt.Errorf("encode a capture: %w", err)
	}
	return b.Bytes(), nil
}

// crop is a part of a picture, which shares nothing with it.
func crop(p *image.RGBA, box image.Rectangle) Image {
	return Image{RGBA, p.Rect.Dx(), p.Rect.Dy(), p.Pix}.part(box, nil)
}
