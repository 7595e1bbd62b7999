package store

// SignaturesChecked loads the times of a reader's segments again, and counts the signatures that are checked for it.
func SignaturesChecked(r *Reader) (count int, err error) {
	_, err = r.loadTimes(func(statement, signature []byte) error {
		count++
		return r.store.checkSignature(statement, signature)
	})
	return count, err
}
