package step

import "strings"

// Child is the path of what is called name below path. A name that people chose may hold any character; those that paths give a meaning are escaped.
func Child(path, name string) string {
	return path + "/" + strings.NewReplacer("%", "%25", "/", "%2F").Replace(name)
}

// Unchild is the name that Child was given, from what View.Under answers.
func Unchild(name string) string {
	return strings.NewReplacer("%2F", "/", "%25", "%").Replace(name)
}
