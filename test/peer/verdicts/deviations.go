package verdicts

// Deviation is a difference from the peer that is meant.
type Deviation struct {
	// Verdict is ours. Where it is the peer's too, only the places differ.
	Verdict Verdict
	Why     string
}

// Reasons of more than one deviation.
const (
	manifest    = "bundle.toml is read here: it lists what the bundle requires"
	nesting     = "the folders of a universe hold one file each; nothing nests, and every name is one that an id holds"
	strict      = "steps are read strictly, so that a slip isn't run: an unknown field, a value of another kind, or fields that exclude each other"
	atOnce      = "faults of form, of fields and of the graph are told in one answer, before any store is asked"
	everyTask   = "every task of a bundle is checked, whatever is selected, as types of steps and names are"
	absolute    = "paths that aren't inside the bundle are shown absolute"
	exactly     = "the place is the value that is wrong"
	noLink      = "no link leads out of a bundle, whatever it is of"
	wholeFolder = "a folder that is refused is looked at whole"
	noName      = "a name of an environment is part of addresses at the gateway: what could not be deployed is refused before anything is written"
	outputID    = "an output may be named by its id too, which is the task's and its name"
)

// Deviations are the inputs on which this program differs from the peer, each with the reason. One that no longer differs fails the test. Where
// the peer ends with a stack trace, a refusal is wanted, and needs no line here.
func Deviations() map[string]Deviation {
	return map[string]Deviation{
		"bundle.toml": {Accept, manifest},

		"no such folder":                                                   {Refuse, absolute},
		"bundle is a file":                                                 {Refuse, absolute},
		"bundle is the root":                                               {Refuse, absolute},
		"bundle is a link to itself":                                       {Refuse, absolute},
		"bundle is a broken link":                                          {Refuse, absolute},
		"kind folder is a link out of the bundle":                          {Refuse, "the link is named, once, and not each entry behind it"},
		"config is a link out of the bundle":                               {Refuse, noLink},
		"task that is a link out of the bundle":                            {Refuse, noLink},
		"unused kind folder is a link out of the bundle":                   {Refuse, noLink},
		"entries that are links out of the bundle and that nobody reaches": {Refuse, noLink},
		"fault beside unreachable files":                                   {Refuse, wholeFolder},
		"skill with odd files":                                             {Refuse, wholeFolder},

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
		"eval: missing ids":                                    {Refuse, "the bundle's own undefined id is told with the other faults"},
		"eval: types":                                          {Refuse, atOnce},
		"env: with names of other shapes":                      {Refuse, noName},
		"env: with a name with a slash":                        {Refuse, noName},
		"aliases: both cases":                                  {Refuse, "both files are named, since both are there"},
	}
}
