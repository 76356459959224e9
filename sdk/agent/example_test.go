package agent_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"agentenv.internal/agentenv/sdk/agent"
)

func noVariables(string) (string, bool) { return "", false }

// An agent is put together from a function that answers one task, then served. In a program, Serve takes the place of a test server and of Close.
func Example() {
	type settings struct {
		Greeting string `json:"greeting" jsonschema:"What to begin with."`
		Token    string `json:"token" writeonly:"true"`
	}
	a := agent.New("greeter", func(_ context.Context, t *agent.Turn) (agent.Result, error) {
		name := t.Text()
		if name == "" {
			return agent.Result{}, agent.Fail("greeter.no_name", "whom shall I greet?")
		}
		if err := t.Record(map[string]string{"greeted": name}); err != nil {
			return agent.Result{}, err
		}
		return agent.Text(agent.Config[settings](t).Greeting + ", " + name), nil
	}, agent.WithDescription("Greets."), agent.WithLookup(noVariables), agent.WithConfig(settings{Greeting: "Hello"}), agent.WithTrajectory())

	h, err := a.Handler()
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	call := func(method, path, body string) string {
		req, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
		if err != nil {
			return err.Error()
		}
		resp, err := srv.Client().Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	fmt.Println(call("POST", "/ext/agent-config", `{"greeting":"Good day","token":"secret"}`))
	fmt.Println(call("GET", "/ext/agent-config", ""))
	answer := call("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"messageId":"m1","role":"user","contextId":"c1","parts":[{"kind":"text","text":"Ann"}]}}}`)
	fmt.Println(strings.Contains(answer, `"state":"completed"`), strings.Contains(answer, `"text":"Good day, Ann"`))
	fmt.Println(call("POST", "/ext/trajectory", `{"context_id":"c1"}`))
	if err := a.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"status":"updated"}
	// {"config":{"greeting":"Good day","token":"***"}}
	// true true
	// {"trajectory":[{"greeted":"Ann"}]}
}

// Refuse answers a caller of an extension by a status and a text of the author's.
func ExampleRefuse() {
	a := agent.New("reader", func(context.Context, *agent.Turn) (agent.Result, error) { return agent.Text("ok"), nil },
		agent.WithLookup(noVariables),
		agent.WithSkills("", func(_ context.Context, s agent.Skill) error {
			if s.Name != "read" {
				return agent.Refuse(http.StatusUnprocessableEntity, "I can't learn to %s", s.Name)
			}
			return nil
		}))
	h, err := a.Handler()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"read", "write", "no way"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/ext/skill-config", strings.NewReader(`{"name":"`+name+`","description":"d","skill_md":"# Skill"}`)))
		fmt.Println(w.Code, w.Body)
	}
	if err := a.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 200 {"name":"read"}
	// 422 I can't learn to write
	// 400 name: want a letter or digit, then at most 127 letters, digits, dots, underscores and dashes
}
