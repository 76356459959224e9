package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	installTime = 10 * time.Minute
	// maxSocket is the longest path of a Unix socket.
	maxSocket = 107
)

// home is that of the desktop's user.
func (s *desktop) home() string {
	if s.config.Home != "" {
		return s.config.Home
	}
	for _, v := range slices.Backward(s.config.Environ) {
		if dir, ok := strings.CutPrefix(v, "HOME="); ok {
			return dir
		}
	}
	return ""
}

// folder is where programs of the desktop start: the home, where there is one.
func (s *desktop) folder() string {
	dir := s.home()
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

func (s *desktop) socket(app string) string {
	return filepath.Join(s.home(), home.Private, "apps", app+".sock")
}

func (s *desktop) startDriver() error {
	p := program{argv: s.config.Driver}
	if len(p.argv) == 0 {
		p.path, p.argv = "/proc/self/exe", []string{"agent-env", "computer", "driver", "--size", fmt.Sprintf("%dx%d", s.config.Width, s.config.Height)}
		if s.config.Skill != "" {
			p.argv = append(p.argv, "--skill", s.config.Skill)
		}
	}
	if len(s.config.Apps) > 0 {
		var list []computer.App
		for _, a := range s.config.Apps {
			list = append(list, computer.App{Name: a.Name, Socket: s.socket(a.Name), Paths: append([]string{}, a.Paths...)})
		}
		b, err := json.Marshal(list)
		if err != nil {
			return err
		}
		p.vars = []string{computer.AppsVariable + "=" + string(b)}
	}
	var err error
	s.driver, err = s.spawn(p)
	return err
}

// startApps installs every app and starts its server, one after another.
func (s *desktop) startApps(ctx context.Context) error {
	if len(s.config.Apps) == 0 {
		return nil
	}
	if s.home() == "" {
		return errors.New("the apps have no home: set HOME, or --home")
	}
	for _, dir := range []string{home.Private, filepath.Join(home.Private, "apps")} {
		if err := os.MkdirAll(filepath.Join(s.home(), dir), 0o700); err != nil {
			return fmt.Errorf("the apps' home: %w", err)
		}
	}
	s.apps = make([]*process, len(s.config.Apps))
	for i, a := range s.config.Apps {
		if n := len(s.socket(a.Name)); n > maxSocket {
			return fmt.Errorf("the app %s: its socket's path has %d characters, and may have %d: use a home with a shorter path", a.Name, n, maxSocket)
		}
		if err := s.install(ctx, a); err != nil {
			return fmt.Errorf("install the app %s: %w", a.Name, err)
		}
		if err := s.startApp(ctx, i); err != nil {
			return fmt.Errorf("the app %s: %w", a.Name, err)
		}
	}
	return nil
}

// vars are the variables of an app's programs.
func (s *desktop) vars(a App) []string {
	return []string{app.NameVariable + "=" + a.Name, app.HomeVariable + "=" + s.home(), app.SocketVariable + "=" + s.socket(a.Name), wire.NameVariable + "=" + a.Name, "SERVICE_NAME=" + a.Name}
}

// install runs an app's program for that, unless it has been run in this home.
func (s *desktop) install(ctx context.Context, a App) error {
	done := filepath.Join(s.home(), home.Private, "apps", a.Name+".installed")
	if len(a.Install) == 0 {
		return nil
	}
	if _, err := os.Lstat(done); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	if s.installing, err = s.spawn(program{argv: a.Install, dir: a.Dir, vars: s.vars(a)}); err != nil {
		return err
	}
	defer func() { s.installing = nil }()
	limit := time.NewTimer(installTime)
	defer limit.Stop()
	select {
	case <-s.installing.done:
		err = s.installing.err
	case <-limit.C:
		err = fmt.Errorf("it took more than %s", installTime)
	case <-s.driver.done:
		err = fmt.Errorf("the driver ended: %w", s.driver.said())
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.installing.stop()
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(done, 0o600, nil)
}

func (s *desktop) startApp(ctx context.Context, i int) error {
	a := s.config.Apps[i]
	if len(a.Server) > 0 { // one of ours sees to that itself
		if err := app.FreeSocket(ctx, s.socket(a.Name)); err != nil {
			return err
		}
	}
	p := program{argv: a.Server, dir: a.Dir, vars: s.vars(a)}
	if len(p.argv) == 0 {
		p.path, p.argv = "/proc/self/exe", []string{"agent-env", "computer", "app", "serve", a.Dir, "--name", a.Name, "--launch"}
		if a.Skill != "" {
			p.argv = append(p.argv, "--skill", a.Skill)
		}
	}
	started, err := s.spawn(p)
	if err != nil {
		return err
	}
	s.apps[i] = started
	go func() { // ends with the process, which stopAll waits for, or once hold has heard of it
		<-started.done
		select {
		case s.ended <- a.Name:
		case <-s.over:
		}
	}()
	return nil
}

// appAgain starts the server of an app that ended.
func (s *desktop) appAgain(ctx context.Context, name string) error {
	i := slices.IndexFunc(s.config.Apps, func(a App) bool { return a.Name == name })
	return s.again(ctx, "the server of the app "+name, s.apps[i], func(ctx context.Context) error { return s.startApp(ctx, i) })
}
