package export

// Check says why a sink cannot be started: what [Open] would say of it, without
// its cursor and without anything being sent.
func Check(s *Spec) error {
	sink, err := newSink(s, &Mapping{}, nil)
	if err != nil {
		return err
	}
	return sink.Close()
}
