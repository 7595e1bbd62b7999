// Package talk is what the runner and the agent inside a guest say to each other: one JSON object a line, over a virtio
// serial port. It is used by both, so that neither can drift.
package talk

// PortName is the name of the virtio serial port.
const PortName = "farlog.agent"

// Operations. The runner numbers the commands; what belongs to a command carries its number.
const (
	OpHello  = "hello"  // agent → runner, once, first
	OpStart  = "start"  // runner → agent: run Argv with Env added to the agent's own environment
	OpInput  = "input"  // runner → agent: Data for the command's standard input
	OpClose  = "close"  // runner → agent: the end of its standard input
	OpSignal = "signal" // runner → agent: Code to the command's process group
	OpOutput = "output" // agent → runner: Data from its standard output
	OpErrors = "errors" // agent → runner: Data from its standard error
	OpTaken  = "taken"  // agent → runner: a signal has been sent, and after SIGSTOP the command stands
	OpExit   = "exit"   // agent → runner: it has ended; Code, or Text when it could not be started
)

// Message is one line.
type Message struct {
	Op   string   `json:"op"`
	ID   int      `json:"id,omitempty"`
	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	Data []byte   `json:"data,omitempty"`
	Code int      `json:"code,omitempty"` // a signal's number; an exit code, 128 + the signal when a signal ended it
	Text string   `json:"text,omitempty"`
}
