package local

import (
	"runtime"
	"sync"
)

// forker is the one thread that forks boxes. The kernel ties a child's death to the thread that forked it, not to the process, so that
// thread must live as long as the provider does.
type forker struct {
	once sync.Once
	work chan func()
	done chan struct{}
}

func newForker() *forker { return &forker{work: make(chan func()), done: make(chan struct{})} }

// do runs f on the thread.
func (k *forker) do(f func()) {
	k.once.Do(func() { go k.loop() })
	done := make(chan struct{})
	k.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (k *forker) loop() {
	runtime.LockOSThread() // never unlocked: the thread ends with the loop
	defer close(k.done)
	for f := range k.work {
		f()
	}
}

// stop ends the thread, and with it every tied child.
func (k *forker) stop() {
	started := true
	k.once.Do(func() { started = false })
	close(k.work)
	if started {
		<-k.done
	}
}
