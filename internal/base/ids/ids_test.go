package ids

import "testing"

func TestIs(t *testing.T) {
	good := "tsk_01a1fe46-d68f-77d6-9611-d5a7674802c7"
	for id, want := range map[string]bool{
		good: true, good[4:]: false, "att_" + good[4:]: false, good + "0": false, good[:39]: false,
		"tsk_01a1fe46-d68f-77d6-9611-d5a7674802C7": false, "tsk_01a1fe46xd68f-77d6-9611-d5a7674802c7": false, "": false,
	} {
		if Is(Task, id) != want {
			t.Errorf("%q", id)
		}
	}
}
