// Package envdb gives environments schemas of a PostgreSQL server: one for each environment of a deployment, with a user of its own that reaches
// nothing else, made before the servers start and dropped at the end.
//
// Words: a deployment's Databases are its schemas and the log of what is changed in them; the log is written by triggers and read by the gateway.
// While Databases stand, their connection holds an advisory lock of the server: what a killed process left is found by its lock being free, and dropped
// by the next Open of anybody. The package starts no server. Passwords of environments are made here and are in the URLs alone: the server is told
// their SCRAM verifiers, so that no log of it holds one.
package envdb
