package requirement

import (
	"os"
	"runtime"
	"strings"
)

// Environment is the marker variables of one Python interpreter, by their names in PEP 508.
type Environment struct {
	ImplementationName           string `json:"implementation_name"`
	ImplementationVersion        string `json:"implementation_version"`
	OSName                       string `json:"os_name"`
	PlatformMachine              string `json:"platform_machine"`
	PlatformRelease              string `json:"platform_release"`
	PlatformSystem               string `json:"platform_system"`
	PlatformVersion              string `json:"platform_version"`
	PythonFullVersion            string `json:"python_full_version"`
	PlatformPythonImplementation string `json:"platform_python_implementation"`
	PythonVersion                string `json:"python_version"`
	SysPlatform                  string `json:"sys_platform"`
}

// variables are the names that markers may use, old spellings included.
var variables = [...]struct{ spelled, name string }{
	{"python_version", "python_version"},
	{"python_full_version", "python_full_version"},
	{"os_name", "os_name"},
	{"os.name", "os_name"},
	{"sys_platform", "sys_platform"},
	{"sys.platform", "sys_platform"},
	{"platform_release", "platform_release"},
	{"platform_system", "platform_system"},
	{"platform_version", "platform_version"},
	{"platform.version", "platform_version"},
	{"platform_machine", "platform_machine"},
	{"platform.machine", "platform_machine"},
	{"platform_python_implementation", "platform_python_implementation"},
	{"platform.python_implementation", "platform_python_implementation"},
	{"python_implementation", "platform_python_implementation"},
	{"implementation_name", "implementation_name"},
	{"implementation_version", "implementation_version"},
	{"extra", "extra"},
	{"extras", "extras"}, // of lock files: names without a value here
	{"dependency_groups", "dependency_groups"},
}

// variable is the value of a variable, and whether there is one of that name.
func (e Environment) variable(name string) (string, bool) {
	switch name {
	case "implementation_name":
		return e.ImplementationName, true
	case "implementation_version":
		return e.ImplementationVersion, true
	case "os_name":
		return e.OSName, true
	case "platform_machine":
		return e.PlatformMachine, true
	case "platform_release":
		return e.PlatformRelease, true
	case "platform_system":
		return e.PlatformSystem, true
	case "platform_version":
		return e.PlatformVersion, true
	case "python_full_version":
		return e.PythonFullVersion, true
	case "platform_python_implementation":
		return e.PlatformPythonImplementation, true
	case "python_version":
		return e.PythonVersion, true
	case "sys_platform":
		return e.SysPlatform, true
	default:
		return "", false
	}
}

// Newest is the environment that a machine without a Python is taken to have: the newest CPython that this program knows, on this machine.
func Newest() Environment {
	e := reference()
	e.PlatformRelease, e.PlatformVersion = kernel("osrelease"), kernel("version")
	return e
}

// reference is an environment in which everything that can be evaluated anywhere can be.
func reference() Environment {
	e := Environment{
		ImplementationName: "cpython", PlatformPythonImplementation: "CPython",
		ImplementationVersion: "3.14.0", PythonFullVersion: "3.14.0", PythonVersion: "3.14",
		OSName: "posix", SysPlatform: runtime.GOOS, PlatformMachine: runtime.GOARCH, PlatformSystem: "Linux", PlatformRelease: "6.1.0",
	}
	if runtime.GOOS == "darwin" {
		e.PlatformSystem = "Darwin"
	}
	switch runtime.GOARCH {
	case "amd64":
		e.PlatformMachine = "x86_64"
	case "arm64":
		if runtime.GOOS == "linux" {
			e.PlatformMachine = "aarch64"
		}
	}
	return e
}

// kernel is what the kernel says of itself; "" where it doesn't.
func kernel(name string) string {
	b, err := os.ReadFile("/proc/sys/kernel/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
