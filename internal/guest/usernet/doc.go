// Package usernet is the network of a sandbox in user space: what leaves a box's TUN comes to a TCP/IP stack of this process, which
// opens a connection of the host for each flow that the policy allows, and refuses all others.
//
// Words: the policy is what a box may reach, pure and without knowledge of the host; a flow is one TCP connection or one pair of UDP
// ports; a fake address stands for a name, so that the name itself is dialled on the host's side and not what the box resolved it to;
// what was refused is blocked, and logged once per destination.
//
// Nothing here knows how a box is made. The package gives no address that is not public to a box unless a CIDR of its policy names it,
// and it answers no ping.
package usernet
