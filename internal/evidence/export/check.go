package export

// Check returns the reason that a sink cannot be started, as [Open] would, but without its cursor
// and without sending anything.
func Check(s *Spec) error {
	sink, err := newSink(s, &Mapping{}, nil)
	if err != nil {
		return err
	}
	return sink.Close()
}
