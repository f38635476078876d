(* Failures inside the game: beside what is left of the costs there is a mass of failures that is left,
   and every cost may take some of it. Whatever costs were played, in whatever order, the masses add up
   to no more than was there, beside the bound of the costs without failures.
   docs/notes/mechanisms.md; dptopk.accounting.registry, split_failure *)
From mathcomp Require Import all_ssreflect all_algebra.
From dptopk Require Import Game Rounds Setwise.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Families.
Variable R : realFieldType.
Variables (C : Type) (cls : C -> class R).
Variables (T : Type) (may : T -> C -> Prop) (next : T -> C -> T).

(* What [every_play] asks of a bound, for costs of any class. *)
Record family (ok : T -> Prop) (W : T -> R -> R -> R) : Prop := Family {
  f_next : forall s c, ok s -> may s c -> ok (next s c);
  f_pos : forall s p q, ok s -> 0 <= p -> 0 <= q -> 0 <= W s p q;
  f_sub : forall s p q, ok s -> 0 <= p -> 0 <= q -> p - q <= W s p q;
  f_hom : forall s k p q, ok s -> 0 <= k -> 0 <= p -> 0 <= q -> W s (k * p) (k * q) <= k * W s p q;
  f_step : forall s c, ok s -> may s c -> step_ok cls c (W (next s c)) (W s) }.

(* More weight of P is worth more, at most as much as the weight; more weight of Q is worth less. *)
Record regular (W : R -> R -> R) : Prop := Regular {
  r_q : forall p q q', 0 <= p -> 0 <= q -> q <= q' -> W p q' <= W p q;
  r_p : forall p q p', 0 <= p -> 0 <= q -> p <= p' -> W p q <= W p' q;
  r_lip : forall p q p', 0 <= p -> 0 <= q -> 0 <= p' -> W (p + p') q <= W p q + p' }.

Theorem family_every_play ok W (D : Type) (nb : D -> D -> Prop) s
  (A : @analyst R C cls D nb T may next s) d d' S u :
  family ok W -> ok s -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + W s 1 u.
Proof.
case=> okn W0 W1 Wh Ws oks dd' u0.
exact: (every_play_delta okn W0 W1 Wh Ws A S oks dd' u0).
Qed.

(* A cost with a mass of failures, of either form. *)
Definition with_failures (c : C * R) : class R := fun n P Q =>
  failing (cls c.1) c.2 P Q \/ good_set (cls c.1) c.2 P Q.
Definition may_fail (s : T * R) (c : C * R) : Prop := may s.1 c.1 /\ c.2 <= s.2.
Definition next_fail (s : T * R) (c : C * R) := (next s.1 c.1, s.2 - c.2).

Variables (ok : T -> Prop) (W : T -> R -> R -> R).
Hypothesis W_family : family ok W.
Hypothesis W_regular : forall s, ok s -> regular (W s).

Theorem failures (D : Type) (nb : D -> D -> Prop) s m
  (A : @analyst R (C * R) with_failures D nb (T * R) may_fail next_fail (s, m)) d d' S u :
  ok s -> 0 <= m -> nb d d' -> 0 <= u -> Pr A d S <= u * Pr A d' S + (W s 1 u + m).
Proof.
move=> oks m0 dd' u0; case: W_family => okn W0 W1 Wh Ws.
pose V := fun (t : T * R) p q => W t.1 p q + p * t.2.
have -> : W s 1 u + m = V (s, m) 1 u by rewrite /V /= mul1r.
apply: (every_play_delta (ok := fun t : T * R => ok t.1 /\ 0 <= t.2) (W := V)) => //; rewrite /V.
- move=> t c [okt t0] [mt ct]; split; first exact: okn.
  by rewrite /= subr_ge0.
- by move=> t p q [okt t0] p0 q0; rewrite addr_ge0 ?mulr_ge0 // W0.
- move=> t p q [okt t0] p0 q0; apply: (le_trans (W1 t.1 p q okt p0 q0)).
  by rewrite ler_addl mulr_ge0.
- move=> t k p q [okt t0] k0 p0 q0; rewrite mulrDr mulrA ler_add2r; exact: Wh.
move=> t c [okt t0] [mt ct] n P Q cPQ p q p0 q0 /=.
have [mq mp lip] := W_regular (okn _ _ okt mt).
have hom k a b : 0 <= k -> 0 <= a -> 0 <= b ->
    W (next t.1 c.1) (k * a) (k * b) <= k * W (next t.1 c.1) a b.
  by apply: Wh; apply: okn.
have pos a b : 0 <= a -> 0 <= b -> 0 <= W (next t.1 c.1) a b by apply: W0; apply: okn.
have step : step_ok (fun _ : unit => cls c.1) tt (W (next t.1 c.1)) (W t.1) by apply: Ws.
have pos' a b : 0 <= a -> 0 <= b -> 0 <= W t.1 a b by apply: W0.
have total : c.2 + (t.2 - c.2) = t.2 by rewrite addrC subrK.
case: cPQ => H; [have := failing_step (t.2 - c.2) mq lip hom pos' step H p0 q0
                |have := good_set_step (t.2 - c.2) mq lip mp hom pos step H p0 q0];
  by rewrite total.
Qed.
End Families.

Section Registered.
Variable R : realFieldType.

(* Pure DP and bounded range are such a family. *)
Lemma bounds_family T may next ok (W : T -> R -> R -> R) :
  bounds may next ok W -> family (@cls R) may next ok W.
Proof.
case=> okn r1 sW W0 W1 WB; split=> //.
  by move=> s k p q oks; case: (sW s oks) => _; apply.
move=> s c oks ms; apply: bellman_step; first exact: (r1 s).
  by apply: sW; apply: okn.
by move=> p q p0 q0; apply: WB.
Qed.

(* And every convex, decreasing profile that is at most 1 is regular. *)
Lemma persp_regular (h : R -> R) : convex h -> decreasing h -> (forall u, 0 <= u -> 0 <= h u) ->
  h 0 <= 1 -> regular (persp h).
Proof.
move=> ch dh h0 h1; split=> [p q q' p0 q0 qq'|p q p' p0 q0 pp'|p q p' p0 q0 p'0].
- rewrite /persp; case: eqP => // _; apply: ler_wpmul2l => //.
  by apply: dh; rewrite ?divr_ge0 // ler_wpmul2r ?invr_ge0.
- have p'0 : 0 <= p' by apply: le_trans pp'.
  rewrite /persp; have [pe|pn] := eqVneq p 0.
    by case: eqP => // _; rewrite mulr_ge0 ?h0 ?divr_ge0.
  have pp : 0 < p by rewrite lt_def pn.
  have p'p : 0 < p' by apply: lt_le_trans pp'.
  rewrite gt_eqF //; apply: (@le_trans _ _ (p * h (q / p'))).
    apply: ler_wpmul2l => //; apply: dh; first by rewrite divr_ge0.
    by rewrite ler_wpmul2l // lef_pinv.
  by apply: ler_wpmul2r => //; apply: h0; rewrite divr_ge0.
have [add _] := persp_sublinear ch dh.
rewrite -[q in X in X <= _]addr0; apply: (le_trans (add p q p' 0 p0 q0 p'0 (lexx 0))).
rewrite ler_add2l /persp; case: eqP => // _.
by rewrite mul0r ler_pimulr.
Qed.

(* As it is used: P(S) <= e^x Q(S) + h(e^x) + the mass of all failures. *)
Theorem failures_beside_profiles T may next ok (h : T -> R -> R) (D : Type) (nb : D -> D -> Prop) s m
  (A : @analyst R (cost R * R) (with_failures (@cls R)) D nb (T * R) (may_fail may) (next_fail next)
     (s, m)) d d' S u :
  profiles may next ok h -> (forall t, ok t -> h t 0 <= 1) -> ok s -> 0 <= m -> nb d d' -> 0 <= u ->
  Pr A d S <= u * Pr A d' S + (h s u + m).
Proof.
move=> H h1 oks m0 dd' u0.
have -> : h s u = persp (h s) 1 u by rewrite /persp oner_eq0 divr1 mul1r.
apply: (failures (W := fun t => persp (h t)) (bounds_family (profiles_bounds H)) _ A S oks m0 dd' u0).
case: H => _ _ ch dh h0 _ _ t okt.
by apply: persp_regular; [apply: ch|apply: dh|move=> v; apply: h0|apply: h1].
Qed.
End Registered.
