package computer

// AppendChunk appends a chunk of a PNG.
func AppendChunk(to []byte, name string, data []byte) []byte { return chunk(to, name, data) }
