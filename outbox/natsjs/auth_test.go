package natsjs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/openloam/loam/events"
	"github.com/openloam/loam/internal/natsserver"
	"github.com/openloam/loam/outbox"
	"github.com/openloam/loam/outbox/natsjs"
)

// certificate makes one for 127.0.0.1, and a file with what is to be trusted.
func certificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/ca.pem"
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, file
}

func options(all ...nats.Option) func(*natsjs.Config) {
	return func(c *natsjs.Config) { c.Options = all }
}

// TLS by nats.go's options, with an nkey; without the authority, and with another key, nothing is sent, and that is an outage.
func TestTLSAndNkey(t *testing.T) {
	t.Parallel()
	config, ca := certificate(t)
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(natsserver.Run(t, func(o *server.Options) {
		o.TLSConfig, o.TLSTimeout = config, 5
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	}).ClientURL(), "nats://", "tls://", 1)
	newSender(t, url, options(nats.RootCAs(ca), nats.Nkey(public, user.Sign))).send(event(t, paid, nil))
	one := []events.Event{event(t, paid, nil)}
	failure(t, "no authority", newSender(t, url, options(nats.Nkey(public, user.Sign))).Send(t.Context(), one)[0], outbox.IsUnavailable, "certificate")
	other, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	failure(t, "another key", newSender(t, url, options(nats.RootCAs(ca), nats.Nkey(public, other.Sign))).Send(t.Context(), one)[0], outbox.IsUnavailable, "Authorization Violation")
}

// operated runs a server whose accounts are of an operator, and returns it, and what makes credentials of an account of it.
func operated(t *testing.T) (url string, credentials func(known bool) string) {
	t.Helper()
	make := func(kind func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := kind()
		if err != nil {
			t.Fatal(err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		return pair, public
	}
	encode := func(text string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	operator, operatorID := make(nkeys.CreateOperator)
	_, systemID := make(nkeys.CreateAccount)
	account, accountID := make(nkeys.CreateAccount)
	stranger, _ := make(nkeys.CreateAccount)
	claims := jwt.NewOperatorClaims(operatorID)
	claims.SystemAccount = systemID
	encode(claims.Encode(operator)) // which fills it
	limited := jwt.NewAccountClaims(accountID)
	limited.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	for id, text := range map[string]string{
		systemID: encode(jwt.NewAccountClaims(systemID).Encode(operator)), accountID: encode(limited.Encode(operator)),
	} {
		if err := resolver.Store(id, text); err != nil {
			t.Fatal(err)
		}
	}
	url = natsserver.Run(t, func(o *server.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{claims}, resolver, systemID
	}).ClientURL()
	return url, func(known bool) string {
		user, userID := make(nkeys.CreateUser)
		seed, err := user.Seed()
		if err != nil {
			t.Fatal(err)
		}
		signer := account
		if !known {
			signer = stranger
		}
		text, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(userID).Encode(signer)), seed)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// A file of credentials: those that the broker does not take are an outage, however often they are tried, and once the file has others
// events go out, without a new Bus.
func TestCredentialsThatAreRenewed(t *testing.T) {
	t.Parallel()
	url, credentials := operated(t)
	file := t.TempDir() + "/user.creds"
	write(t, file, credentials(false))
	s := newSender(t, url, options(nats.UserCredentials(file)))
	one := []events.Event{event(t, paid, nil)}
	for range 4 {
		failure(t, "unknown credentials", s.Send(t.Context(), one)[0], outbox.IsUnavailable, "Authorization Violation")
	}
	write(t, file+".new", credentials(true))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is sent", func() bool { return s.Send(t.Context(), one)[0] == nil })
}

// The handlers that a program sets by nats.go's options are called as well, and nats.go prints nothing by itself.
func TestHandlersOfTheProgram(t *testing.T) {
	t.Parallel()
	app, _ := refusing(t)
	p := natsserver.Between(t, strings.Replace(app, "nats://app:b@", "nats://", 1))
	came := make(chan string, 100)
	say := func(what string) { came <- what }
	s := newSender(t, strings.Replace(p.URL(), "://", "://app:b@", 1), options(
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) { say("error") }),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { say("disconnected") }),
		nats.ReconnectErrHandler(func(*nats.Conn, error) { say("not reconnected") }),
		nats.ReconnectHandler(func(*nats.Conn) { say("reconnected") }),
		nats.ClosedHandler(func(*nats.Conn) { say("closed") }),
	))
	wait := func(want string) {
		t.Helper()
		for end := time.After(20 * time.Second); ; {
			select {
			case got := <-came:
				if got == want {
					return
				}
			case <-end:
				t.Fatalf("no handler said %q", want)
			}
		}
	}
	failure(t, "refused", s.Send(t.Context(), []events.Event{event(t, secret, nil)})[0], nil)
	wait("error")
	p.Cut()
	wait("disconnected")
	wait("reconnected")
	p.Close()
	wait("not reconnected")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wait("closed")
}
