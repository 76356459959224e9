package envdb

import "context"

// Abandon ends the connection as the process's death does.
func (d *Databases) Abandon() { _ = d.conn.Close(context.Background()) }
