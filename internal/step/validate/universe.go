package validate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// VerifyUniverseRoundTrip loads a universe into an environment, exports it, and does so again with the export.
type VerifyUniverseRoundTrip struct {
	store store.Store
	envs  Environments
}

// NewVerifyUniverseRoundTrip makes the executor of verify_universe_load_export_roundtrip.
func NewVerifyUniverseRoundTrip(s store.Store, e Environments) *VerifyUniverseRoundTrip {
	return &VerifyUniverseRoundTrip{s, e}
}

// ExportsPath is where the step leaves the artifact with its exports, when it was asked to keep them: step.Child of it.
const ExportsPath = "metadata/universe_roundtrip_exports"

// Run records what it found. The record of the run keeps it: a stored environment and universe stay as they are.
func (e *VerifyUniverseRoundTrip) Run(ctx context.Context, c *step.Call) error {
	v, err := find(e.envs, c)
	if err != nil {
		return err
	}
	version, _ := c.Doc.Get("universe_artifact_version").Int()
	d, err := envstore.ReadData(ctx, e.store, c.Doc.Get("universe_artifact_id").Text(), int(version))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &step.Error{Type: "NotFoundError", Err: err}
	case err != nil:
		return &step.Error{Type: "ValueError", Err: err}
	}
	var keep *keeper
	var kept func(Exported) error
	if emit, _ := c.Doc.Get("emit_file_artifact_universe").Bool(); emit {
		if keep, err = newKeeper(ctx, e.store); err != nil {
			return step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		defer keep.discard()
		kept = keep.add
	}
	rows, err := CheckRoundTrip(ctx, v, e.store, d, kept)
	if err != nil {
		return err
	}
	for _, r := range rows {
		r["universe_artifact_id"], r["universe_artifact_version"] = d.Artifact.ID, d.Artifact.Version
	}
	if keep != nil {
		pin, err := keep.commit(ctx, e.store, c.Run+"-"+c.Step)
		if err != nil {
			return step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		if err := c.Out.Set(step.Child(ExportsPath, c.Step), pin); err != nil {
			return err
		}
	}
	return record(c, RoundTrip, v, rows)
}

// keeper stores exports as one universe of files.
type keeper struct {
	stage store.Stage
	mu    sync.Mutex
	files []artifact.Bytes
}

func newKeeper(ctx context.Context, s store.Store) (*keeper, error) {
	stage, err := s.Begin(ctx)
	return &keeper{stage: stage}, err
}

func (k *keeper) discard() { _ = k.stage.Discard() } // after a commit there is nothing to discard

func (k *keeper) add(x Exported) error {
	f, err := os.Open(x.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	d, n, err := k.stage.Put(f)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files = append(k.files, artifact.Bytes{Path: "export-" + strconv.Itoa(x.Round) + "/" + x.Environment + "/" + x.Name, Digest: d, Size: n, Mode: 0o644})
	return nil
}

// commit stores the exports as the next version of id.
func (k *keeper) commit(ctx context.Context, s store.Store, id string) (envstore.Pin, error) {
	var paths []string
	for _, f := range k.files {
		paths = append(paths, f.Path)
	}
	if paths == nil {
		return envstore.Pin{}, errors.New("nothing was exported")
	}
	latest, err := s.Latest(ctx, store.Artifact, append(artifact.Children(artifact.FileUniverse, id, paths), id))
	if err != nil {
		return envstore.Pin{}, err
	}
	next := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: latest[id].Version + 1} }
	created := time.Now().UTC().Truncate(time.Microsecond)
	pin := next(id)
	for _, d := range artifact.NewFileUniverse(pin, k.files, next) {
		k.stage.Doc(store.Doc{
			Kind: store.Artifact, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(created), Objects: d.Objects, Created: created,
		}, store.LatestIs(latest[d.ID].Version))
	}
	if err := k.stage.Commit(ctx); err != nil {
		return envstore.Pin{}, fmt.Errorf("store the exports: %w", err)
	}
	return envstore.Pin{ID: pin.ID, Version: pin.Version, Type: artifact.FileUniverse}, nil
}

// CombineUniverseVerdicts joins what the comparison of a universe's exports found with what a judge thinks of it.
type CombineUniverseVerdicts struct{}

// NewCombineUniverseVerdicts makes the executor.
func NewCombineUniverseVerdicts() *CombineUniverseVerdicts { return &CombineUniverseVerdicts{} }

// Run records both verdicts as rows; the universe passes when both do. A verdict that nobody gave, or that says nothing, is told as such and fails it.
func (e *CombineUniverseVerdicts) Run(_ context.Context, c *step.Call) error {
	var rows []step.Row
	for _, of := range [][2]string{{"comparison", RoundTrip}, {"judge", c.Doc.Get("judge_verifier_id").Text()}} {
		what, name := of[0], of[1]
		v, found, err := verification(c, name)
		if err != nil {
			return err
		}
		problem := ""
		switch gateOf(v, found) {
		case gateAbsent:
			problem = "no step left the verification " + diag.Repr(name)
		case gateSkipped:
			problem = "nothing was checked"
		case gateFailed:
			problem = fmt.Sprintf("it scores %g", v.Score)
			if v.Unscored != "" {
				problem = "it has no score: " + v.Unscored
			}
		}
		rows = append(rows, outcome("", what, problem))
	}
	return c.Out.Set(step.Child(step.VerificationsPath, UniverseVerdict), Verification(c.Step, rows))
}
