package doctor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/firstseen/firstseen/consumer/cluster"
)

var clusterChecks = []Check{
	{
		Name: "kafka.reachable", About: "a broker answers", needs: needsConfig, run: kafkaReachable,
		Do: map[Level]string{Fault: "Set what is named, or start the brokers."},
	},
	{
		Name: "kafka.version", About: "the brokers know what firstseen asks for", needs: needsKafka, run: kafkaVersion,
		Do: map[Level]string{
			Fault: "Upgrade the brokers to Kafka 2.1 or newer.",
			Info: "Upgrade the brokers to 2.8 or newer: without topic IDs a topic that was deleted and " +
				"made anew is told by its offsets only.",
		},
	},
	{
		Name: "kafka.auto_create", About: "auto.create.topics.enable is off", needs: needsKafka, run: kafkaAutoCreate,
		Do: map[Level]string{Warning: "Set auto.create.topics.enable=false on the brokers: " +
			"a topic that was deleted, " +
			"or misspelt, is otherwise made by whoever asks for it, with default settings."},
	},
}

func kafkaReachable(ctx context.Context, p *target, r *report) error {
	if p.withoutKafka() {
		return errNoKafka
	}
	if err := p.join(ctx); err != nil {
		r.fault("%s", explained(err))
		return nil
	}
	r.ok("the cluster %s answers; brokers: %d", p.settings.ClusterID, p.settings.Brokers)
	return nil
}

// kafkaVersion goes by what the brokers know: topic IDs came with 2.8. Older ones are told by the requests that they
// speak.
func kafkaVersion(ctx context.Context, p *target, r *report) error {
	facts, err := p.facts(ctx)
	if err != nil {
		return err
	}
	there := slices.DeleteFunc(slices.Clone(facts), func(f cluster.TopicFacts) bool { return f.Missing })
	major, minor, known := parseVersion(p.settings.Version)
	switch {
	case len(there) == 0:
		return errors.New("none of the topics exists")
	case there[0].ID != uuid.Nil:
		r.ok("the brokers have topic IDs")
	case known && (major < 2 || major == 2 && minor < 1):
		r.fault("the brokers seem to be %s; firstseen needs 2.1", p.settings.Version)
	default:
		r.info("the brokers have no topic IDs; they seem to be %s", p.settings.Version)
	}
	return nil
}

// parseVersion reads the release in a guess such as "v2.8" or "at least v4.0". What lies between two is no Kafka of
// its own, and says nothing.
func parseVersion(guess string) (major, minor int, ok bool) {
	_, release, found := strings.Cut(guess, "v")
	if !found || strings.HasPrefix(guess, "between") {
		return 0, 0, false
	}
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err == nil {
		minor, err = strconv.Atoi(second)
	}
	return major, minor, err == nil
}

func kafkaAutoCreate(_ context.Context, p *target, r *report) error {
	if p.settings.Hidden != nil {
		return p.settings.Hidden
	}
	if p.settings.AutoCreate {
		r.warn("auto.create.topics.enable is true")
	}
	r.ok("auto.create.topics.enable is false")
	return nil
}

// facts gives the topics of the config that exist; the dead letter topic is the last, if there is one.
func (p *target) facts(ctx context.Context) ([]cluster.TopicFacts, error) {
	if p.topics != nil {
		return p.topics, nil
	}
	names, err := p.topicNames(ctx)
	if err != nil {
		return nil, err
	}
	if p.Config.DeadLetterTopic != "" {
		names = append(names, p.Config.DeadLetterTopic)
	}
	if len(names) == 0 {
		return nil, errors.New("the config names no topic that there is")
	}
	found, err := p.cluster.Topics(ctx, names)
	if errors.Is(err, cluster.ErrNotAllowed) && len(found) == len(names) {
		err = nil // each says so itself
	}
	if err == nil {
		p.topics = found
	}
	return found, err
}

// topicNames are those of the topics that are read: the config's, and those that its patterns match.
func (p *target) topicNames(ctx context.Context) ([]string, error) {
	if p.read != nil {
		return slices.Clone(p.read), nil
	}
	var all []string
	if len(p.Config.Patterns()) > 0 {
		var err error
		if all, err = p.cluster.TopicNames(ctx); err != nil {
			return nil, err
		}
	}
	p.read = append([]string{}, p.Config.ReadOf(all)...)
	return slices.Clone(p.read), nil
}

// readFacts are the facts of the topics that are read.
func (p *target) readFacts(ctx context.Context) ([]cluster.TopicFacts, error) {
	facts, err := p.facts(ctx)
	if err != nil {
		return nil, err
	}
	return facts[:len(p.read)], nil
}

// eachRead calls do with each topic that is read and exists, and whose settings are told. Others are reported.
func (p *target) eachRead(ctx context.Context, r *report, do func(cluster.TopicFacts)) error {
	facts, err := p.readFacts(ctx)
	if err != nil {
		return err
	}
	for _, f := range facts {
		switch {
		case f.Missing:
		case f.Hidden != nil:
			r.notChecked(f.Hidden)
		default:
			do(f)
		}
	}
	return nil
}
