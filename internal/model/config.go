package model

const (
	lease   = 3 // ticks
	backoff = 2 // ticks, after a failure, and when a row is put back for another process
	early   = 3 // an early wake-up is put back if it is early by no more ticks
	horizon = 5 // a wake-up is scheduled at most so many ticks ahead
	rescue  = 4 // ticks until River gives a killed process's job back
)

// How the outcome and the renewal know their claim.
const (
	tokenNone int8 = iota
	tokenTime      // started_at
	tokenFull      // started_at and owner
)

// Where the pause is looked at.
const (
	pauseNowhere int8 = iota
	pauseBefore       // in the look before the claim
	pauseInClaim      // in the claim's transaction as well
)

// What resuming wakes.
const (
	resumeNothing int8 = iota
	resumeAll          // every pending row, for the time it is due, in the transaction that lifts the pause
	resumeDue          // only those that are due
	resumeBefore       // every pending row, in a transaction before the one that lifts the pause
)

// What happens to the rows of a job that there is no slot for.
const (
	handForgotten int8 = iota
	handInClaim        // a new wake-up in the claim's transaction
	handAfter          // a new wake-up in a transaction of its own, after the claim's
)

// What happens to a row whose wake-up meets a run of the same process.
const (
	ownTakeover int8 = iota // claimed like any other
	ownDrop                 // nothing: its run does what is needed
	ownLook                 // nothing while its claim is held; woken again when it is not
)

// How a transactional handler's commit knows that it may be.
const (
	effectToken   int8 = iota // its claim is held, and the row is pending
	effectPending             // the row is pending
	effectLoose               // it does not ask
	effectAlone               // its claim is held; the outcome comes in a transaction after it
)

// What a transactional handler's commit that was not answered is taken for.
const (
	unsureCut     int8 = iota // nothing: on condition of the token the row is put back, as a run cut by shutdown is
	unsureSuccess             // a success: on condition of the token the row is marked delivered
	unsureFailure             // a failure: the row is put back, without a condition
	unsureDone                // a failure, and on condition of the token the ledger says done
	unsureNothing             // a success: nothing is left to do
	unsureFailed              // a failure: on condition of the token it spends an attempt
)

// config is the protocol with its conditions, and what may happen. The zero value has no condition at all; see fixed.
type config struct {
	// The claim.
	recheck    bool // the row is read again in the claim's transaction
	peek       bool // the look before the claim is a step of its own
	own        int8
	unkClaim   bool // a key that is not known is judged under a claim
	ownRepeat  bool // a repeat after a lost answer finds the claims of its first try
	giveBack   bool // a claim that nobody will run is given back
	backWakes  bool // and its row is woken
	backStarts bool // and its start is taken back
	putBack    bool // an early wake-up is put back for the due time
	repeatEach bool // a repeat looks for the claim of each row, not only for one of the job's
	handOn     int8
	doneGuard  bool // marking a row delivered because the ledger says done repeats that condition
	elseCheck  bool // a key that another process knows is put back, not parked
	elseKeeps  bool // and the crash count is kept
	pauseIn    int8
	pauseRep   bool // the pause is looked at in the repeat after a lost answer
	// The run and its outcome.
	token       int8
	fromSnap    bool // attempts are written as a number computed from what was read before the claim
	renew       bool
	renewLoose  bool // renewal does not look at the token
	renewOrphan bool // a claim that nobody runs is renewed
	failWakes   bool // a failure's outcome inserts a wake-up
	lostWakes   bool // the outcome of a run that lost its claim inserts a wake-up
	lostCounts  bool // and leaves the start counted, as after a crash
	lostLeaves  bool // a run that is found lost leaves its process's table
	cutWakes    bool // shutdown's outcome inserts a wake-up
	unfCounter  bool // crashes are starts without an outcome; else runs less attempts
	// A transactional handler: its effect, the ledger's done and the row's delivered are one commit.
	txn            bool
	effect, unsure int8
	// Clocks: margin after the lease for a takeover, stop before its end for the owner.
	margin, stop int8
	skew         [workers]int8
	// Repair and operator.
	sweepOn, lostCheck, rescue bool
	redelReset                 bool // redelivery sets runs to 0
	againForces                bool // redelivering a delivered row deletes the ledger's done
	resume                     int8
	resumeSkew                 int8 // the clock of who resumes
	rowGuard                   bool // the outcome changes the row on condition that it is pending
	parkForgets, redelForgets  bool // parking and redelivering delete the ledger's row

	// What there is.
	rows       int // 1 or 2
	procs      int // workers that exist; the third only where it is needed
	oneProcess bool
	slots      int  // rows that a worker claims at once
	w1unknown  bool // worker 1 does not know the key
	elsewhere  bool // and has read that another process does
	limit      int8 // of crashes; 0: not counted, to have fewer states
	maxAtt     int8
	edit       bool // a redelivery edits the payload
	shutdown   bool
	killLate   bool // processes are killed after their claim only
	countVoid  bool // a run whose claim an operator has ended counts for Overlap
	lastGone   bool // the last worker, once killed, does not come back

	// Budgets.
	crashes, redels, lostAnswers, snoozes, gone, anews, repubs, pauses, stucks, parks int8
}

// low is a relative time that is past for every clock; older ones need not be told apart.
func (c *config) low() int8 {
	least := int8(0)
	for _, s := range c.skew {
		least = min(least, s)
	}
	return least - c.margin - c.stop - 1
}

func (c *config) clamp(t int8) int8 { return max(t, c.low()) }

// proc is the process of worker i.
func (c *config) proc(i int) int {
	if c.oneProcess && i == 1 {
		return 0
	}
	return i
}

func (c *config) ignorant(i int) bool { return c.w1unknown && i == 1 }

// symmetric: the first two workers are alike.
func (c *config) symmetric() bool { return c.skew[0] == c.skew[1] && !c.w1unknown }
