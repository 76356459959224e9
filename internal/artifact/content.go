package artifact

import (
	"path"
	"strings"
)

// TreeSuffix ends the name of a file that holds a tree of files, as `artifact tree pack` makes it: a zip that is loaded as the files in it.
const TreeSuffix = ".tree.zip"

// ContentType is guessed from a name, the same on every machine.
func ContentType(name string) string {
	if strings.HasSuffix(strings.ToLower(name), TreeSuffix) {
		return "application/vnd.agentenv.file-tree+zip"
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".txt", ".log":
		return "text/plain"
	case ".md":
		return "text/markdown"
	case ".html", ".htm":
		return "text/html"
	case ".css":
		return "text/css"
	case ".csv":
		return "text/csv"
	case ".xml":
		return "text/xml"
	case ".js", ".mjs":
		return "text/javascript"
	case ".py":
		return "text/x-python"
	case ".sh":
		return "application/x-sh"
	case ".json":
		return "application/json"
	case ".yaml", ".yml":
		return "application/yaml"
	case ".toml":
		return "application/toml"
	case ".pdf":
		return "application/pdf"
	case ".zip":
		return "application/zip"
	case ".gz", ".tgz":
		return "application/gzip"
	case ".tar":
		return "application/x-tar"
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".gif":
		return "image/gif"
	case ".webp":
		return "image/webp"
	case ".svg":
		return "image/svg+xml"
	case ".mp3":
		return "audio/mpeg"
	case ".wav":
		return "audio/x-wav"
	case ".mp4":
		return "video/mp4"
	default:
		return "application/octet-stream"
	}
}
