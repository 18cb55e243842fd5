package doctor

import (
	"context"
)

var registryChecks = []Check{
	{
		Name: "registry.reachable", About: "the schema registry answers", needs: needsConfig, run: registryReachable,
		Do: map[Level]string{
			Fault: "Set what is named below registry, or start it: a partition waits at the first message whose schema is " +
				"not known yet.",
		},
	},
}

func registryReachable(ctx context.Context, p *target, r *report) error {
	_, registry, err := p.Config.Formats()
	switch {
	case err != nil:
		return err
	case registry == nil:
		r.ok("the config has none")
		return nil
	}
	defer registry.Close()
	if err := registry.Ping(ctx); err != nil {
		r.fault("%v", err)
		return nil
	}
	r.ok("%s answers", p.Config.Registry.URL)
	return nil
}
