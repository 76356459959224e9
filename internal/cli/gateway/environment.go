package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/sdk/wire"
)

// settings are what the environment variables say.
type settings struct {
	host string
	port int
	wait time.Duration // for the servers to answer
	front.Options
	unused []string // variables that are set and mean nothing here
}

// defaultWait is how long servers may take to answer.
const defaultWait = 180 * time.Second

// read reads the variables that the gateway of an environment is started with. The error names every one that can't be read.
func read(lookup func(string) (string, bool)) (settings, error) {
	get := func(name, missing string) string {
		if v, ok := lookup(name); ok && v != "" {
			return v
		}
		return missing
	}
	var bad []error
	number := func(name string, missing float64, most float64) float64 {
		v, err := strconv.ParseFloat(get(name, fmt.Sprint(missing)), 64)
		if err != nil || !(v >= 0 && v <= most) {
			bad = append(bad, fmt.Errorf("%s must be a number from 0 to %.0f", name, most))
		}
		return v
	}
	s := settings{host: get(wire.HostVariable, "127.0.0.1")}
	s.port = int(number(wire.PortVariable, wire.DefaultPort, 65535))
	s.wait = time.Duration(number("GATEWAY_INTERNAL_SERVER_TIMEOUT_S", defaultWait.Seconds(), 1e6) * float64(time.Second))
	childPort := int(number("INTERNAL_MCP_PORT", wire.DefaultPort, 65535))
	s.Name = get("MCP_SERVER_NAME", "env")
	s.CallLog = get("GATEWAY_TRAJECTORY_FILE", "")
	switch mode := get("GATEWAY_MODE", "performance"); mode {
	case "performance":
	case "consistent":
		s.Consistent = true
	default:
		bad = append(bad, errors.New("GATEWAY_MODE must be performance or consistent"))
	}
	if get("SERVICE_DB_URL", "") != "" {
		s.unused = append(s.unused, "SERVICE_DB_URL")
	}
	children, errs := children(get, childPort)
	s.Children = children
	if err := errors.Join(append(bad, errs...)...); err != nil {
		return s, err
	}
	s.GetTimeURL = "http://" + net.JoinHostPort(s.host, strconv.Itoa(s.port)) + "/clock/time"
	return s, nil
}

// pair is name=url of a list.
type pair struct{ name, url string }

func pairs(variable, list string, bareOK bool) ([]pair, []error) {
	var out []pair
	var bad []error
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, u, has := strings.Cut(item, "=")
		p := pair{strings.TrimSpace(name), strings.TrimSpace(u)}
		parsed, err := url.Parse(p.url)
		switch {
		case p.name == "":
			bad = append(bad, fmt.Errorf("%s: %q has no name", variable, item))
		case !has && !bareOK:
			bad = append(bad, fmt.Errorf("%s: %q must be name=URL", variable, item))
		case has && (err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == ""):
			bad = append(bad, fmt.Errorf("%s: the URL of %q must begin with http:// or https://", variable, p.name))
		case slices.ContainsFunc(out, func(o pair) bool { return o.name == p.name }):
			bad = append(bad, fmt.Errorf("%s: %q comes twice", variable, p.name))
		default:
			out = append(out, p)
		}
	}
	return out, bad
}

func find(ps []pair, name string) string {
	for _, p := range ps {
		if p.name == name {
			return p.url
		}
	}
	return ""
}

func children(get func(name, missing string) string, port int) ([]front.Child, []error) {
	servers, bad := pairs("INTERNAL_MCP_SERVERS", get("INTERNAL_MCP_SERVERS", ""), true)
	bases, errs := pairs("REST_PROXY_URLS", get("REST_PROXY_URLS", ""), false)
	bad = append(bad, errs...)
	sites, errs := pairs("WEBSITE_URLS", get("WEBSITE_URLS", ""), false)
	bad = append(bad, errs...)
	var out []front.Child
	for _, p := range servers {
		mcp := cmp.Or(p.url, fmt.Sprintf("http://%s:%d/mcp", p.name, port))
		base := cmp.Or(find(bases, "mcp-"+p.name), strings.TrimSuffix(strings.TrimSuffix(mcp, "/"), "/mcp"))
		out = append(out, front.Child{Name: p.name, MCP: mcp, URL: base})
	}
	for _, p := range bases {
		if name, isServer := strings.CutPrefix(p.name, "mcp-"); !isServer {
			out = append(out, front.Child{Name: p.name, URL: p.url, Website: true, Frontend: find(sites, p.name)})
		} else if find(servers, name) == "" && !slices.ContainsFunc(servers, func(s pair) bool { return s.name == name }) {
			bad = append(bad, fmt.Errorf("REST_PROXY_URLS: %q is the server of no environment in INTERNAL_MCP_SERVERS", p.name))
		}
	}
	for _, p := range sites {
		if find(bases, p.name) == "" {
			out = append(out, front.Child{Name: p.name, URL: p.url, Website: true, Frontend: p.url})
		}
	}
	if len(out) == 0 && len(bad) == 0 {
		bad = append(bad, errors.New("nothing stands behind the gateway: name servers in INTERNAL_MCP_SERVERS, as name=http://host:port/mcp, comma-separated"))
	}
	return out, bad
}
