package reload

import "github.com/openclawos/ocipd/internal/store"

// replace commits the records of what comes into force, and puts it in force. No decision is made in
// between.
func (r *Engine) replace(change *store.Change, swap func()) error {
	defer r.o.Replacing()()
	if _, err := r.o.Commit(change); err != nil {
		return err
	}
	swap()
	return nil
}
