package local

import (
	"path/filepath"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
	"agentenv.internal/agentenv/internal/treestore"
)

// startLimit ends a start that hangs.
const startLimit = 20 * time.Second

// Provider makes local boxes.
type Provider struct {
	opts     Options
	boxes    string // folder of the boxes
	trees    *trees
	images   *image.Store
	layers   *treestore.Store // of snapshots
	launcher *hostside.Launcher
	program  *hostside.Program
	hosts    *hostside.Program // of network hosts
	host     *host

	mu       sync.Mutex
	closed   bool
	passing  map[string]*kept  // snapshots of this process alone, by id
	children map[string]*child // boxes that this process started, by id
	making   sync.WaitGroup    // calls of Create
	watching sync.WaitGroup    // goroutines that wait for children
}

var (
	_ sandbox.Provider = (*Provider)(nil)
	_ sandbox.Checker  = (*Provider)(nil)
)

// New makes a provider. It touches nothing until a box is asked for. Close ends the tied boxes.
func New(o Options) (*Provider, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	guests, hosts := hostside.GuestProgram(Carried()), hostside.HostProgram()
	images := o.Images
	if images == nil {
		images = image.Open(image.Options{Dir: filepath.Join(o.StateRoot, "images")})
	}
	return &Provider{
		opts: o, images: images, boxes: filepath.Join(o.StateRoot, "boxes"), trees: newTrees(filepath.Join(o.StateRoot, "trees")),
		launcher: hostside.NewLauncher(guests), program: guests, hosts: hosts, host: newHost(), passing: map[string]*kept{}, children: map[string]*child{},
		layers: treestore.Open(filepath.Join(o.StateRoot, "layers"), treestore.Options{Volatile: true}),
	}, nil
}
