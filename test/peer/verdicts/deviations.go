package verdicts

// Deviation is a difference from the peer that is meant.
type Deviation struct {
	// Verdict is ours. Where it is the peer's too, only the places differ.
	Verdict Verdict
	Why     string
}

// Reasons of more than one deviation.
const (
	manifest  = "bundle.toml is read here: it lists what the bundle requires"
	nesting   = "the folders of a universe hold one file each; nothing nests, and every name is one that an id holds"
	strict    = "steps are read strictly, so that a slip isn't run: an unknown field, a value of another kind, or fields that exclude each other"
	atOnce    = "faults of form, of fields and of the graph are told in one answer, before any store is asked"
	everyTask = "every task of a bundle is checked, whatever is selected, as types of steps and names are"
	absolute  = "paths that aren't inside the bundle are shown absolute"
	exactly   = "the place is the value that is wrong"
	drivers   = "drivers can't be written yet, and the refusal says so"
	outputID  = "an output may be named by its id too, which is the task's and its name"
)

// Deviations are the inputs on which this program differs from the peer, each with the reason. One that no longer differs fails the test. Where
// the peer ends with a stack trace, a refusal is wanted, and needs no line here.
func Deviations() map[string]Deviation {
	return map[string]Deviation{
		"bundle.toml": {Accept, manifest},

		"no such folder":                          {Refuse, absolute},
		"bundle is a file":                        {Refuse, absolute},
		"bundle is the root":                      {Refuse, absolute},
		"bundle is a link to itself":              {Refuse, absolute},
		"bundle is a broken link":                 {Refuse, absolute},
		"kind folder is a link out of the bundle": {Refuse, "the link is named, once, and not each entry behind it"},
		"config is a link out of the bundle":      {Refuse, "no link leads out of a bundle, that of a toml neither"},

		"U nested folders":                           {Refuse, nesting},
		"U nested folders beside a file":             {Refuse, nesting},
		"U nested metadata":                          {Refuse, nesting},
		"U names with derived marks":                 {Refuse, nesting},
		"U names with edge spaces":                   {Refuse, nesting},
		"U names that no id holds":                   {Refuse, nesting},
		"U metadata keys that no id holds":           {Refuse, nesting},
		"skill: blank description":                   {Refuse, "a description of spaces alone says nothing"},
		"skill: duplicate keys":                      {Refuse, "a key that is written twice is a slip in YAML too"},
		"skill: front matter with a byte order mark": {Accept, "a byte order mark is no fault in any text of a bundle"},

		"task: empty list":           {Refuse, "a task without steps can't run: the peer takes it, and then fails it"},
		"task: UTF-16":               {Refuse, "texts of a bundle are UTF-8"},
		"task: lone surrogate":       {Refuse, "an escape that stands for no character is no text that can be stored"},
		"task: number too large":     {Refuse, "a number that isn't finite has no JSON"},
		"task: unknown field":        {Refuse, strict},
		"task: several faults":       {Refuse, atOnce},
		"task: several graph faults": {Refuse, atOnce},

		"step: load of both":                                   {Refuse, strict},
		"step: load into two places":                           {Refuse, strict},
		"step: verify with criteria of another kind":           {Refuse, strict},
		"step: peer of itself":                                 {Refuse, strict},
		"step: names of fields that are no strings":            {Refuse, strict},
		"step: script that is missing":                         {Refuse, atOnce},
		"step: fault of a graph in a task that isn't selected": {Refuse, everyTask},
		"step: missing field in a task that isn't selected":    {Refuse, everyTask},
		"mixed: broken in plan and in the graph":               {Refuse, atOnce},
		"ref: null":                                            {Refuse, "a load that names nothing has nothing to load"},
		"ref: pins of wrong values":                            {Refuse, exactly},
		"output: read by its id":                               {Accept, outputID},
		"output: written by its id":                            {Accept, outputID},
		"output: named by a foreign id":                        {Refuse, "what a step writes is named under its task, so that it can't take another's place"},
		"eval: types":                                          {Refuse, atOnce},
		"env: with a misspelt Dockerfile and a toml":           {Refuse, "the file that is misspelt is named"},
		"env: driver":                                          {Refuse, drivers},
		"env: driver without a module":                         {Refuse, drivers},
		"env: driver with bad modules":                         {Refuse, drivers},
		"env: driver whose file isn't there":                   {Refuse, drivers},
		"aliases: both cases":                                  {Refuse, "both files are named, since both are there"},
	}
}

// Open are the inputs on which this program still differs and shouldn't: nothing is asked of them but that they do no harm.
func Open() []string {
	return []string{
		"task suffix in both cases", "ligature beside its letters", "artifact and skill of one name in two cases", "bad name with an id of its own",
		"folder below one with a bad name", "folders with two bad names", "fault beside unreachable files", "empty artifact folders with a type",
		"skill under artifacts", "Dockerfile beside a lower-case one", "misspelt toml beside the right one", "image with two sources",
		"image refs without a registry", "image refs that are no strings", "image with an image key", "image whose Dockerfile is a broken link",
		"cli into a sandbox", "cli among artifacts into a sandbox", "cli into an agent alone", "cli into an environment alone",
		"SKILL.md in two cases", "skill with odd files", "E7 stored words for the file", "E14 no artifact in the table",
		"U with a name in both Unicode forms", "U12 elements of wrong kinds", "output: written twice", "output: id that an entry declares",
		"eval: tables of other shapes", "eval: one task by name and id", "eval: missing ids", "eval: mixed faults of references", "eval: task of the store",
		"env: with a card on a function", "env: with a misspelt Dockerfile beside another image", "env: with an image table of other keys",
		"aliases: empty lists", "aliases: its own name", "flags: fault that the selection reaches and a flag that names nothing", "mixed: names of every kind",
	}
}
