package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// anchors are complaints of the field by their numbers, and the tests that hold what each asks of agents, their models and their tools.
func anchors() map[int]struct{ asks, tests string } {
	return map[int]struct{ asks, tests string }{
		13: {
			"a resumed eval runs nothing again for what can't change a result, and says what made it run the rest", "TestWhatMakesTrialsRunAgain TestEvalSettings TestResumeSaysWhy",
		},
		14: {"no reward is no result and no zero", "TestUnitTestsRunInAFork TestWhatCannotBeTriedNeverScores TestNothingIsNoZero TestSummarize"},
		15: {
			"what an endpoint refuses, also by a 200, is the machinery's",
			"TestFaults TestFaultsDontMoveScores TestFaultBehindTheDoor TestRefusalBehindA200 TestAgentWithoutAnAnswerOfItsModel",
		},
		16: {
			"a minute without names loses nothing; a spent key is its own cause and stops new starts",
			"TestNamesThatDontResolveForAMinute TestOutageBehindTheDoor TestSpent TestEndpointThatStaysDown",
		},
		17: {"the counts sum up to what was asked for", "FuzzCounts TestSummarize TestEvalOf200Runs"},
		18: {
			"each step has a time of its own, and a verifier that could not be run is run again without the agent",
			"TestTimeout TestTimeoutTellsTheLastState TestRegradeOfAVerifierThatCouldNotBeRun TestRegradeRefusals",
		},
		19: {"a create that is repeated gives the same sandbox", "TestSuite/KeyGivesTheSameBox TestSuite/ConcurrentCreatesOfOneKey TestMakerKilledAtAnyMoment"},
		20: {"a killed agent's trajectory, tokens and cost are those of the endpoint", "TestAgentThatIsKilled TestKilledAgent TestKilledTurn TestKillAtEveryEvent"},
		21: {"intervals, the smallest detectable difference, and gates that say when repeats are too few", "TestIntervalCovers TestCompare TestEqualRunsAreNotCertain TestGate"},
		22: {"a malformed verdict is no score, and its text is kept", "TestMalformedVerdicts TestMalformedVerdictsAreNoScore FuzzVerdict"},
		25: {"one message of 64 MiB passes; beyond the cap one call fails and the session lives", "TestLarge TestLongLines"},
		33: {"names that every model takes, which stay and lead back in the record", "TestNames TestNamesStay TestClashes FuzzBuild"},
		34: {"one bad schema sets one tool aside, or is lowered for the model", "TestSetAside TestLower FuzzLower"},
		35: {"404 before a stream, one new session, and only calls again that can't have been done", "TestSessionExpires TestTransport TestLostSession TestNotRepeated TestTokenOfNoUse"},
		36: {"a token that changes, a server that restarts, a stream that is cut: the next call works or fails at once", "TestTokenOfNoUse TestKilledChild TestRestart TestCutStream"},
	}
}

// TestAnchorsNameTests: every test that an anchor names exists, parts of suites included.
func TestAnchorsNameTests(t *testing.T) {
	var text strings.Builder
	for _, root := range []string{".", "../sdk"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "sandboxtest") {
				return err
			}
			b, err := os.ReadFile(name)
			text.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, a := range anchors() {
		for name := range strings.FieldsSeq(a.tests) {
			test, part, _ := strings.Cut(name, "/")
			if !strings.Contains(text.String(), "func "+test+"(") || part != "" && !strings.Contains(text.String(), `"`+part+`"`) {
				t.Errorf("anchor %d (%s) names %s, which doesn't exist", n, a.asks, name)
			}
		}
	}
}
