package hostile

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

const attackVariable = "FARLOG_HOSTILE_ATTACK"

// attacks are what a process of user nobody does. It prints what it could do, a line each, and ends with 0.
var attacks = map[string]func(args []string) error{
	"fifo":     func(args []string) error { return syscall.Mkfifo(args[0], 0o666) },
	"truncate": truncateForever,
	"open":     openFiles,
	"ask":      askAgent,
	"silent":   connectSilently,
	"garbage":  sendGarbage,
}

func play(attack string, args []string) int {
	if err := attacks[attack](args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// nobodyDoes makes the command of an attack.
func (w *world) nobodyDoes(attack string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.binary, args...)
	cmd.Env = append(os.Environ(), attackVariable+"="+attack)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	return cmd
}

// nobodyDid runs an attack to its end and gives what it said.
func (w *world) nobodyDid(attack string, args ...string) []string {
	w.Helper()
	output, err := w.nobodyDoes(attack, args...).CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v: %s", attack, err, output)
	}
	return strings.Fields(string(output))
}

// nobodyKeepsDoing starts an attack that goes on until stop is called. It returns when the attack has begun.
func (w *world) nobodyKeepsDoing(attack string, args ...string) (stop func()) {
	w.Helper()
	cmd := w.nobodyDoes(attack, args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	w.must(err)
	w.must(cmd.Start())
	if n, err := stdout.Read(make([]byte, 6)); err != nil || n == 0 {
		w.Fatalf("%s did not begin: %v", attack, err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// truncateForever makes a file longer and shorter: whoever has it mapped dies of SIGBUS.
func truncateForever(args []string) error {
	file, err := os.OpenFile(args[0], os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := file.Truncate(65536); err != nil {
			return err
		}
		if i == 0 {
			fmt.Println("begun")
		}
		if err := file.Truncate(0); err != nil {
			return err
		}
	}
}

// openFiles prints which files nobody can open, or lock.
func openFiles(args []string) error {
	for _, path := range args {
		file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		fmt.Println("opened", path)
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			fmt.Println("locked", path)
		}
		file.Close()
	}
	return nil
}

// askAgent asks a host agent for what nobody may have, as often as it can in a second, and prints how often.
func askAgent(args []string) error {
	count := 0
	for began := time.Now(); time.Since(began) < time.Second; count++ {
		conn, err := net.Dial("unixpacket", args[0])
		if err != nil {
			return err
		}
		if _, err := conn.Write([]byte("farlog-agent 1 writer\nstream " + neighbourName + "\nname x\n")); err != nil {
			return err
		}
		answer := make([]byte, 4096)
		if n, err := conn.Read(answer); err != nil || strings.HasPrefix(string(answer[:n]), "ok") {
			return fmt.Errorf("answer %q, %v", answer[:n], err)
		}
		conn.Close()
	}
	fmt.Println(count)
	return nil
}

// connectSilently opens a number of connections, or as many as it can, to addresses in turn, says nothing, and holds
// them.
func connectSilently(args []string) error {
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var held []net.Conn
	for i := range count {
		address := args[1+i%(len(args)-1)]
		conn, err := net.DialTimeout(networkOf(address), address, 5*time.Second)
		if err != nil {
			continue // it is let in no more
		}
		held = append(held, conn)
	}
	if len(held) < count/4 {
		return fmt.Errorf("only %d connections of %d", len(held), count)
	}
	fmt.Println("begun")
	time.Sleep(time.Hour)
	for _, conn := range held {
		conn.Close()
	}
	return nil
}

// networkOf distinguishes the socket of a host agent from a port.
func networkOf(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unixpacket"
	}
	return "tcp"
}

// sendGarbage sends bytes of a seed to addresses.
func sendGarbage(args []string) error {
	random := rand.New(rand.NewPCG(7, 22))
	for _, address := range args {
		for range 50 {
			conn, err := net.DialTimeout(networkOf(address), address, 5*time.Second)
			if err != nil {
				continue // it is let in no more
			}
			raw := make([]byte, random.IntN(4096))
			for i := range raw {
				raw[i] = byte(random.Uint32())
			}
			_, _ = conn.Write(raw) // the other end may close it
			conn.Close()
		}
	}
	return nil
}

// The attackers are nobody: without that the attacks would prove nothing.
func TestAttacker_IsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs the super-user")
	}
	dir := testenv.MemoryDir(t)
	secret := dir + "/secret"
	w := &world{T: t, binary: dir + "/hostile.test"}
	w.must(os.Chmod(dir, 0o755))
	w.must(copyProgram(w.binary))
	w.must(os.WriteFile(secret, nil, 0o600))
	w.must(os.WriteFile(dir+"/open", nil, 0o644))
	could := strings.Join(w.nobodyDid("open", secret, dir+"/open"), " ")
	if could != "opened "+dir+"/open locked "+dir+"/open" {
		t.Fatalf("nobody could: %s", could)
	}
}
