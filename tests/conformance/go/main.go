// Scenarios with azservicebus; prints one line of JSON for each.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	bus "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func main() {
	client := must(bus.NewClientFromConnectionString(os.Getenv("BUSWAY_CONNECTION_STRING"), nil))
	for _, each := range busScenarios {
		scenario(each.name, func(within context.Context) { each.run(within, client) })
	}
	for _, each := range hubScenarios {
		scenario(each.name, each.run)
	}
}

type busScenario struct {
	name string
	run  func(context.Context, *bus.Client)
}

var busScenarios = []busScenario{
	{"send and receive, with all properties", sendAndReceive},
	{"a batch of 500", batch},
	{"settle: complete, abandon, renew", settle},
	{"deferred", deferred},
	{"dead letters", deadLetters},
	{"scheduled and cancelled", scheduled},
	{"peek", peek},
	{"sessions: state, order, next available", sessions},
	{"rules: SQL, correlation, action", rules},
	{"an unknown queue, and a wrong key", refused},
}

func sendAndReceive(within context.Context, client *bus.Client) {
	sent := &bus.Message{
		Body: []byte("one"), MessageID: to.Ptr("m"), Subject: to.Ptr("s"), CorrelationID: to.Ptr("c"), ContentType: to.Ptr("t"),
		To: to.Ptr("to"), ReplyTo: to.Ptr("r"), TimeToLive: to.Ptr(time.Minute),
		ApplicationProperties: map[string]any{"text": "x", "number": int64(7), "flag": true, "double": 1.5},
	}
	check(sender(client, "plain").SendMessage(within, sent, nil))
	from := receiver(client, "plain", nil)
	found := take(within, from, 1)[0]
	expect(found.MessageID, "m")
	expect([]string{*found.Subject, *found.CorrelationID, *found.ContentType, *found.To, *found.ReplyTo}, []string{"s", "c", "t", "to", "r"})
	expect(*found.TimeToLive, time.Minute)
	expect(found.ApplicationProperties, sent.ApplicationProperties)
	check(from.CompleteMessage(within, found, nil))
	nothing(within, from)
}

func batch(within context.Context, client *bus.Client) {
	to := sender(client, "batch")
	messages := must(to.NewMessageBatch(within, nil))
	for number := range 500 {
		check(messages.AddMessage(&bus.Message{Body: fmt.Append(nil, number)}, nil))
	}
	check(to.SendMessageBatch(within, messages, nil))
	from := receiver(client, "batch", &bus.ReceiverOptions{ReceiveMode: bus.ReceiveModeReceiveAndDelete})
	for number, each := range take(within, from, 500) {
		expect(string(each.Body), fmt.Sprint(number))
	}
}

func settle(within context.Context, client *bus.Client) {
	send(within, client, "settle", "a", "b")
	from := receiver(client, "settle", nil)
	found := take(within, from, 2)
	check(from.AbandonMessage(within, found[0], &bus.AbandonMessageOptions{PropertiesToModify: map[string]any{"why": "retry"}}))
	check(from.RenewMessageLock(within, found[1], nil))
	check(from.CompleteMessage(within, found[1], nil))
	again := take(within, from, 1)[0]
	expect([]any{string(again.Body), again.DeliveryCount, again.ApplicationProperties["why"]}, []any{"a", uint32(2), "retry"})
	check(from.CompleteMessage(within, again, nil))
}

func deferred(within context.Context, client *bus.Client) {
	send(within, client, "deferred", "later")
	from := receiver(client, "deferred", nil)
	message := take(within, from, 1)[0]
	check(from.DeferMessage(within, message, nil))
	nothing(within, from)
	found := must(from.ReceiveDeferredMessages(within, []int64{*message.SequenceNumber}, nil))
	expect(bodies(found), []string{"later"})
	check(from.CompleteMessage(within, found[0], nil))
}

func deadLetters(within context.Context, client *bus.Client) {
	send(within, client, "dead", "bad")
	from := receiver(client, "dead", nil)
	why := &bus.DeadLetterOptions{Reason: to.Ptr("why"), ErrorDescription: to.Ptr("because")}
	check(from.DeadLetterMessage(within, take(within, from, 1)[0], why))
	found := take(within, receiver(client, "dead", &bus.ReceiverOptions{SubQueue: bus.SubQueueDeadLetter}), 1)[0]
	expect([]string{string(found.Body), *found.DeadLetterReason, *found.DeadLetterErrorDescription}, []string{"bad", "why", "because"})
}

func scheduled(within context.Context, client *bus.Client) {
	messages := []*bus.Message{{Body: []byte("soon")}, {Body: []byte("never")}}
	to := sender(client, "scheduled")
	numbers := must(to.ScheduleMessages(within, messages, time.Now().Add(1500*time.Millisecond), nil))
	check(to.CancelScheduledMessages(within, numbers[1:], nil))
	from := receiver(client, "scheduled", nil)
	expect(bodies(take(within, from, 1)), []string{"soon"})
	nothing(within, from)
}

func peek(within context.Context, client *bus.Client) {
	send(within, client, "peek", "1", "2")
	from := receiver(client, "peek", nil)
	expect(bodies(must(from.PeekMessages(within, 10, nil))), []string{"1", "2"})
}

func sessions(within context.Context, client *bus.Client) {
	out := sender(client, "sessions")
	for number := range 4 {
		id := fmt.Sprintf("s%d", number%2)
		check(out.SendMessage(within, &bus.Message{Body: fmt.Append(nil, number), SessionID: &id}, nil))
	}
	one := must(client.AcceptSessionForQueue(within, "sessions", "s1", nil))
	check(one.SetSessionState(within, []byte("half"), nil))
	expect(string(must(one.GetSessionState(within, nil))), "half")
	check(one.RenewSessionLock(within, nil))
	next := must(client.AcceptNextSessionForQueue(within, "sessions", nil))
	expect(next.SessionID(), "s0")
	for receiver, expected := range map[*bus.SessionReceiver][]string{one: {"1", "3"}, next: {"0", "2"}} {
		found := []string{}
		for len(found) < len(expected) {
			for _, each := range must(receiver.ReceiveMessages(within, 2, nil)) {
				found = append(found, string(each.Body))
				check(receiver.CompleteMessage(within, each, nil))
			}
		}
		expect(found, expected)
		check(receiver.Close(within))
	}
}

func rules(within context.Context, client *bus.Client) {
	text := fmt.Sprintf("Endpoint=sb://localhost:%s;SharedAccessKeyName=%s;SharedAccessKey=%s",
		os.Getenv("BUSWAY_ADMIN"), os.Getenv("BUSWAY_KEY_NAME"), os.Getenv("BUSWAY_KEY"))
	administration := must(admin.NewClientFromConnectionString(text, nil))
	must(administration.DeleteRule(within, "news", "filtered", "$Default", nil))
	must(administration.CreateRule(within, "news", "filtered", &admin.CreateRuleOptions{
		Name: to.Ptr("large"), Filter: &admin.SQLFilter{Expression: "size > 10"}, Action: &admin.SQLAction{Expression: "SET size = size + 1"},
	}))
	must(administration.CreateRule(within, "news", "filtered", &admin.CreateRuleOptions{
		Name: to.Ptr("red"), Filter: &admin.CorrelationFilter{ApplicationProperties: map[string]any{"colour": "red"}},
	}))
	out := sender(client, "news")
	for number, properties := range []map[string]any{{"size": 5}, {"size": 11}, {"colour": "red"}} {
		check(out.SendMessage(within, &bus.Message{Body: fmt.Append(nil, number), ApplicationProperties: properties}, nil))
	}
	from := must(client.NewReceiverForSubscription("news", "filtered", &bus.ReceiverOptions{ReceiveMode: bus.ReceiveModeReceiveAndDelete}))
	found := take(within, from, 2)
	expect(bodies(found), []string{"1", "2"})
	expect(found[0].ApplicationProperties["size"], int64(12))
	nothing(within, from)
}

func refused(within context.Context, client *bus.Client) {
	failed := sender(client, "unknown").SendMessage(within, &bus.Message{Body: []byte("x")}, nil)
	expectCode(failed, bus.CodeNotFound)
	text := strings.Replace(os.Getenv("BUSWAY_CONNECTION_STRING"), ";SharedAccessKey=", ";SharedAccessKey=d3Jvbmc", 1)
	stranger := must(bus.NewClientFromConnectionString(text, nil))
	failed = sender(stranger, "plain").SendMessage(within, &bus.Message{Body: []byte("x")}, nil)
	expectCode(failed, bus.CodeUnauthorizedAccess)
}

func sender(client *bus.Client, path string) *bus.Sender {
	return must(client.NewSender(path, nil))
}

func receiver(client *bus.Client, path string, options *bus.ReceiverOptions) *bus.Receiver {
	return must(client.NewReceiverForQueue(path, options))
}

func send(within context.Context, client *bus.Client, path string, texts ...string) {
	for _, text := range texts {
		check(sender(client, path).SendMessage(within, &bus.Message{Body: []byte(text)}, nil))
	}
}

func take(within context.Context, from *bus.Receiver, count int) []*bus.ReceivedMessage {
	limited, stop := context.WithTimeout(within, 20*time.Second)
	defer stop()
	found := []*bus.ReceivedMessage{}
	for len(found) < count {
		found = append(found, must(from.ReceiveMessages(limited, count-len(found), nil))...)
	}
	return found
}

func nothing(within context.Context, from *bus.Receiver) {
	limited, stop := context.WithTimeout(within, 300*time.Millisecond)
	defer stop()
	found, err := from.ReceiveMessages(limited, 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		panic(fmt.Errorf("expected no message, got %v, %w", bodies(found), err))
	}
}

func bodies(messages []*bus.ReceivedMessage) []string {
	found := []string{}
	for _, each := range messages {
		found = append(found, string(each.Body))
	}
	return found
}

func expectCode(err error, code bus.Code) {
	var refusal *bus.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		panic(fmt.Errorf("expected %s, got %v", code, err))
	}
}

func scenario(name string, run func(context.Context)) {
	result := map[string]string{"name": name, "outcome": "passed"}
	func() {
		defer func() {
			if err := recover(); err != nil {
				result["outcome"], result["reason"] = "failed", strings.SplitN(fmt.Sprint(err), "\n", 2)[0]
			}
		}()
		within, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		run(within)
	}()
	check(json.NewEncoder(os.Stdout).Encode(result))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(found, expected any) {
	if fmt.Sprintf("%#v", found) != fmt.Sprintf("%#v", expected) {
		panic(fmt.Errorf("got %v, expected %v", found, expected))
	}
}
