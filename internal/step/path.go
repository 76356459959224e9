package step

import "strings"

// Child is the path of what is called name below path. A name that people chose may hold any character; those that paths give a meaning are escaped.
func Child(path, name string) string {
	if strings.ContainsAny(name, "%/") {
		name = strings.NewReplacer("%", "%25", "/", "%2F").Replace(name)
	}
	return path + "/" + name
}

// Unchild is the name that Child was given, from what View.Under answers.
func Unchild(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	return strings.NewReplacer("%2F", "/", "%25", "%").Replace(name)
}
