package task

import (
	"encoding/json"
	"testing"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

func TestJSONSchema(t *testing.T) {
	var s struct {
		Schema string `json:"$schema"`
		Type   string
		Items  struct {
			Properties struct{ Type struct{ Enum []string } }
			AllOf      []struct {
				If struct {
					Properties struct{ Type struct{ Const string } }
				}
				Then struct {
					Ref string `json:"$ref"`
				}
			}
		}
		Defs map[string]struct {
			Description          string
			Properties           map[string]map[string]any
			Required             []string
			AdditionalProperties bool
		} `json:"$defs"`
	}
	kinds := step.Kinds()
	if err := json.Unmarshal(doc.JSON(JSONSchema(kinds)), &s); err != nil {
		t.Fatal(err)
	}
	n := len(kinds.Names())
	if s.Type != "array" || s.Schema == "" || len(s.Defs) != n || len(s.Items.AllOf) != n || len(s.Items.Properties.Type.Enum) != n {
		t.Fatalf("%d kinds: %d definitions, %d variants", n, len(s.Defs), len(s.Items.AllOf))
	}
	for _, v := range s.Items.AllOf {
		if v.Then.Ref != "#/$defs/"+v.If.Properties.Type.Const {
			t.Errorf("%+v", v)
		}
	}
	box := s.Defs["deploy_sandbox"]
	if box.AdditionalProperties || box.Description == "" || len(box.Required) != 4 || box.Properties["type"]["const"] != "deploy_sandbox" ||
		box.Properties["cpu"]["default"] != 1.0 || box.Properties["depends_on"] == nil || box.Properties["sandbox_mode"]["enum"] == nil {
		t.Errorf("%+v", box)
	}
}
