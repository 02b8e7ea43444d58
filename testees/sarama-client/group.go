package main

import (
	"context"
	"strings"
	"sync"
	"time"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// The library reports the failure of a commit on a channel, some time later.
const failureTime = 20 * time.Millisecond

// member is a member of a group. It takes one message after the other, so that only what it hands out is marked.
type member struct {
	sarama.ConsumerGroup
	messages chan *sarama.ConsumerMessage
	failures chan error
	leave    context.CancelFunc
	ended    sync.WaitGroup

	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
}

func join(opening testee.Opening, config *sarama.Config) (testee.Consumer, error) {
	group, err := sarama.NewConsumerGroup(strings.Split(opening.Address, ","), opening.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(context.Background())
	m := &member{
		ConsumerGroup: group, messages: make(chan *sarama.ConsumerMessage), failures: make(chan error, 100), leave: leave,
	}
	fail := func(err error) {
		select {
		case m.failures <- err:
		default: // nobody asks
		}
	}
	m.ended.Go(func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{opening.Topic}, m); err != nil && ctx.Err() == nil {
				fail(err)
			}
		}
	})
	go func() {
		for err := range group.Errors() {
			fail(err)
		}
	}()
	return m, nil
}

// Setup, Cleanup and ConsumeClaim are called by the library, in each generation.
func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			select {
			case m.messages <- message:
			case <-session.Context().Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) Poll(wait time.Duration) ([]testee.Object, error) {
	return poll(wait, m.messages, m.failures, func(message *sarama.ConsumerMessage) { m.current().MarkMessage(message, "") })
}

func (m *member) current() sarama.ConsumerGroupSession {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.session
}

func (m *member) Commit() error {
	session := m.current()
	if session == nil {
		return sarama.ErrNotConnected
	}
	session.Commit()
	_, err := poll(failureTime, nil, m.failures, nil)
	return err
}

func (m *member) Close() {
	m.leave()
	m.ended.Wait()
	m.ConsumerGroup.Close()
}
