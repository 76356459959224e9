package run

import "sync"

// spareWorkers is how many goroutines wait for another step to execute.
const spareWorkers = 2

// workers are the goroutines of a run's executors. A few wait for the next step: the stack that executors need is grown once, and not by each
// step of a chain.
type workers struct {
	all  *sync.WaitGroup
	next chan func()
	room chan struct{} // held by those who wait
}

func newWorkers() workers {
	return workers{all: &sync.WaitGroup{}, next: make(chan func()), room: make(chan struct{}, spareWorkers)}
}

// run has f done by a goroutine of its own.
func (w workers) run(f func()) {
	select {
	case w.next <- f:
	default:
		w.all.Go(func() { w.work(f) })
	}
}

// work does f, and what comes after it.
func (w workers) work(f func()) {
	for ok := true; ok; {
		f()
		select {
		case w.room <- struct{}{}:
		default:
			return // enough wait
		}
		f, ok = <-w.next
		<-w.room
	}
}

// end waits for all. Nothing is to run any more.
func (w workers) end() {
	close(w.next)
	w.all.Wait()
}
