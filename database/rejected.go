package database

import "errors"

const codeConstraint = 19

// Rejected reports whether err is the database's word that it did not do what was asked of it, because of what that was:
// at a commit, a constraint that is checked only then. It is not about conflicts, nor about what Unavailable is.
func Rejected(err error) bool {
	var coded interface{ Code() int }
	var stated interface{ SQLState() string }
	switch {
	case err == nil, errors.Is(err, ErrConflict), Unavailable(err):
		return false
	case errors.As(err, &stated):
		return len(stated.SQLState()) == 5
	}
	return errors.As(err, &coded) && coded.Code()&0xff == codeConstraint
}
