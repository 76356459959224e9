package verb

import "github.com/spf13/cobra"

// Format is the first field of every JSON object that a command prints. A change that a reader could trip over raises it.
type Format struct {
	Version int `json:"format_version"`
}

// V1 is the format of today.
func V1() Format { return Format{1} }

// JSONFlag adds --json to a command.
func JSONFlag(cmd *cobra.Command, what string) *bool {
	return cmd.Flags().Bool("json", false, what)
}
