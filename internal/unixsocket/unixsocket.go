// Package unixsocket listens at unix sockets of the state root, and dials them, however deep the state root is: an address of a socket holds a short
// path only. Who may reach a socket is what its folder's mode says. A listener leaves its file, which goes with the folder or by who made it.
package unixsocket
