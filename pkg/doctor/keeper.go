package doctor

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/farlog/farlog/pkg/internal/keeper"
)

const clockOffsetCheck = "clock offset"

// clockOffset asks who keeps the clock how far it is off: chrony, else ptp4l. The kernel's own word is another finding.
func clockOffset(ask keeper.Ask) Finding {
	reading, err := keeper.Read(ask)
	var mistaken *keeper.Mistaken
	var silent *keeper.Silent
	switch {
	case errors.As(err, &mistaken):
		return Finding{clockOffsetCheck, Warn, mistaken.Why, mistaken.Remedy}
	case errors.As(err, &silent) && errors.Is(silent.Chrony, exec.ErrNotFound) &&
		errors.Is(silent.PTP, exec.ErrNotFound):
		return Finding{
			clockOffsetCheck, Warn, err.Error() + ": no time daemon can be asked how far the clock is off",
			"apt install chrony, or linuxptp",
		}
	case err != nil:
		return Finding{clockOffsetCheck, Warn, err.Error(), "systemctl status chrony ptp4l"}
	}
	text := fmt.Sprintf("%s says that it is off by %.3g us", reading.Keeper, 1e6*reading.Offset)
	if reading.Bound > 0 {
		text += fmt.Sprintf(", at most %.3g us with its way to the source", 1e6*reading.Bound)
	}
	if 1e6*reading.Offset > clockErrorMax {
		return Finding{clockOffsetCheck, Warn, text + fmt.Sprintf("; RTS 25 asks for %d us of high-frequency trading",
			clockErrorMax), "chronyc sources, or pmc -u -b 0 'GET TIME_STATUS_NP'"}
	}
	return Finding{clockOffsetCheck, OK, text, ""}
}
