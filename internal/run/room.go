package run

import (
	"log/slog"
	"time"
)

// Room says whether the machine takes another step. Its methods may be called from several goroutines.
type Room interface {
	// Enter takes room for a step, or says why there is none now. A run that has nothing else under way always gets it (first), so that no run
	// waits for ever.
	Enter(first bool) (why string)
	// Leave gives room back.
	Leave()
}

// roomAgain is how soon a run looks again for room that others took.
const roomAgain = 250 * time.Millisecond

// enter tells whether one more step may start now.
func (s *sched) enter() bool {
	under := s.inFlight + s.starting
	if s.q.Parallel > 0 && under >= s.q.Parallel {
		return false
	}
	if s.r.Room == nil {
		return true
	}
	why := s.r.Room.Enter(under == 0)
	if why != "" && why != s.toldRoom { // once for a row of steps that wait, not for each of them
		s.rec.log(slog.LevelInfo, "steps wait for room on this machine: "+why)
		s.toldRoom = why
	}
	s.noRoom = why
	return why == ""
}

// leave gives back the room of a step that has ended, or did not start.
func (s *sched) leave() {
	if s.r.Room != nil {
		s.r.Room.Leave()
	}
}

// roomTimer fires when a step that found no room may look again; it is nil while none waits for room.
func (s *sched) roomTimer() <-chan time.Time {
	if s.noRoom == "" || len(s.ready) == 0 {
		return nil
	}
	return time.After(roomAgain)
}
