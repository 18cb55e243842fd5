-- Payments are summed up by the millisecond in which they are handled, not by that in which they were made.
create schema shop;
create table shop.statements (account text, at timestamptz, cents bigint not null, primary key (account, at));
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.statements values (p->>'account', date_trunc('milliseconds', now()), (p->>'cents')::bigint)
	on conflict (account, at) do update set cents = statements.cents + excluded.cents;
end $$;
