// Package nethost is the program that a sandbox's network runs in: a process outside the box that carries what comes out of the box's TUN
// (package usernet) and the connections to its published ports.
//
// Words: the door is the socket pair between the host and the box's PID 1, whose end is the end of both; what a process of this program is
// to serve is one message, guest.HostNetwork. A network host belongs to one box, never keeps it alive and ends with it. The main program
// plays it, not the guest program, which stays small without the network stack.
package nethost
