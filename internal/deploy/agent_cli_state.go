package deploy

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"agentenv.internal/agentenv/internal/agent/cli"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
)

// cliState is what a snapshot of an installed command holds beside files.
type cliState struct {
	Format  string      `json:"format"`
	Agent   string      `json:"agent"`  // the profile's name: another command can't read its sessions
	Folder  string      `json:"folder"` // where the command kept them
	Session cli.Session `json:"session"`
}

const cliFormat = "agent-env/cli/v1"

// Folders of the workspace that is saved: the files that the agent works on, and what its command keeps of the one conversation.
const (
	savedHome  = "home"
	savedState = "state"
)

func (r *cliRunner) saves() error { return nil }

// save puts the conversation's session, and the agent's folder with what its command keeps of the conversation, without the secrets that are known.
func (r *cliRunner) save(ctx context.Context, conversation string, put func(string, io.Reader) error) error {
	session, folder, ok := r.cli.Session(conversation)
	if !ok {
		return fmt.Errorf("the agent knows no conversation %s", conversation)
	}
	b, err := json.Marshal(cliState{Format: cliFormat, Agent: r.profile.Name, Folder: folder, Session: session})
	if err != nil {
		return err
	}
	if err := put(StateTrajectory, bytes.NewReader(b)); err != nil {
		return err
	}
	return r.agent.putTree(func(w *treeWriter) error {
		if err := w.add(ctx, r.box, loopHome, savedHome, false); err != nil {
			return err
		}
		return w.add(ctx, r.box, folder, savedState, true)
	}, put)
}

func (r *cliRunner) load(ctx context.Context, open func(string) (io.ReadCloser, int64, error), target string) (string, error) {
	f, size, err := open(StateTrajectory)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var state cliState
	if size > maxCLIState || json.NewDecoder(f).Decode(&state) != nil || state.Format != cliFormat {
		return "", errors.New("what was saved is no conversation of an installed command")
	}
	if state.Agent != r.profile.Name {
		return "", fmt.Errorf("what was saved is a conversation of %s, which %s can't read", diag.Repr(state.Agent), r.profile.Name)
	}
	target = orNew(target)
	err = r.cli.Resume(target, state.Session, func(folder string) error {
		for _, x := range [][2]string{{savedHome, loopHome}, {savedState, folder}} {
			w, _, err := open(StateWorkspace)
			if err != nil {
				return err
			}
			err = extractPart(ctx, r.box, w, x[0], x[1])
			_ = w.Close()
			if err != nil {
				return step.Infra(fmt.Errorf("put the agent's folders back: %w", err))
			}
		}
		return r.sameName(ctx, state.Folder, folder)
	})
	if errors.Is(err, cli.ErrTaken) {
		return "", fmt.Errorf("the agent has a conversation %s already", diag.Repr(target))
	}
	return target, err
}

// maxCLIState bounds what a snapshot tells of an installed command's conversation.
const maxCLIState = 1 << 20

// sameName lets the command find its folder where it was, too: some write their own paths down.
func (r *cliRunner) sameName(ctx context.Context, was, is string) error {
	if was == is || path.Clean(was) != was || !strings.HasPrefix(was, cli.StateFolder+"/") {
		return nil
	}
	if _, err := r.box.Stat(ctx, was); !errors.Is(err, fs.ErrNotExist) {
		return nil // another agent's, in a sandbox that they share
	}
	if err := guest.Put(ctx, r.box, path.Dir(was), []guest.PutFile{{Path: path.Base(was), Link: is}}); err != nil {
		return step.Infra(fmt.Errorf("name the folder of the agent's command as it was: %w", err))
	}
	return nil
}

// extractPart extracts what an archive has below one of its folders.
func extractPart(ctx context.Context, box guest.Box, in io.Reader, part, to string) error {
	_, err := piped(func(w io.Writer) error { return copyPart(w, in, part) }, func(r io.Reader) error { return box.Extract(ctx, to, r) })
	return err
}

func copyPart(out io.Writer, in io.Reader, part string) error {
	w := tar.NewWriter(out)
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return w.Close()
		}
		if err != nil {
			return err
		}
		name, ok := strings.CutPrefix(h.Name, part+"/")
		if !ok || name == "" {
			continue
		}
		h.Name, h.Format = name, tar.FormatUnknown
		if h.Typeflag == tar.TypeLink {
			h.Linkname = strings.TrimPrefix(h.Linkname, part+"/")
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
}

var _ stateful = (*cliRunner)(nil)
