(* One pool of failures for two filters (theorem U2): an account that adds up epsilons while it can, and
   a bound of its own besides. A charge that either of them admits may be played; the failures of both
   statements come from one pool while the sum is open, and the sum never opens again.
   docs/notes/filters.md, "Adding up"; dptopk.budgets.adding_up *)
From mathcomp Require Import all_ssreflect all_algebra ring.
From dptopk Require Import Game Rounds Failing.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Pool.
Variable R : realFieldType.
Variables (C : Type) (cls : C -> class R).
Variables (T : Type) (may : T -> C -> Prop) (next : T -> C -> T).
Variables (ok : T -> Prop) (W : T -> R -> R -> R).
Hypothesis W_family : family cls may next ok W.
Hypothesis W_regular : forall s, ok s -> regular (W s).

(* Which of the two admits the charge: both, or one alone, for good. *)
Inductive admitted := Both | Bound_only | Sum_only.
(* A charge: its cost and the mass f with which it fails; its own (epsilon, delta) as (r, delta), r = e^epsilon. *)
Record charge := Charge { asks : C; fails : R; factor : R; own_delta : R; by_whom : admitted }.

(* Both statements hold of the pair. *)
Definition both_hold (c : charge) : class R := fun n P Q =>
  good_set (cls (asks c)) (fails c) P Q /\
  exists e : 'I_n -> R, [/\ forall i, 0 <= e i, \sum_i e i <= own_delta c & forall i, P i <= factor c * Q i + e i].

(* What is left: of the bound, None once it was left; of the sum, the factor e^(epsilon left), None once
   it was left; and the pool. *)
Definition state := (option T * option R * R)%type.
Definition taken (c : charge) : R := if by_whom c is Bound_only then fails c else fails c + own_delta c.
Definition may_take (s : state) (c : charge) : Prop :=
  [/\ 1 <= factor c, taken c <= s.2,
      if by_whom c is Sum_only then True else if s.1.1 is Some t then may t (asks c) else False &
      if by_whom c is Bound_only then True else if s.1.2 is Some b then factor c <= b else False].
Definition after (s : state) (c : charge) : state :=
  (if by_whom c is Sum_only then None else if s.1.1 is Some t then Some (next t (asks c)) else None,
   if by_whom c is Bound_only then None else if s.1.2 is Some b then Some (b / factor c) else None,
   s.2 - taken c).
Definition fine (s : state) : Prop :=
  [/\ 0 <= s.2, if s.1.1 is Some t then ok t else True,
      if s.1.2 is Some b then 1 <= b else True & (s.1.1 = None -> s.1.2 <> None)].

(* The weight of P up to q / b is what the sum's statements allow so far; the rest counts in full. *)
Definition beyond (h : R -> R -> R) b p q := h (Num.min p (q / b)) q + (p - Num.min p (q / b)).
Definition bound_of (a : option T) : R -> R -> R := if a is Some t then W t else fun _ _ => 0.
Definition value_of (s : state) : R -> R -> R :=
  if s.1.2 is Some b then beyond (bound_of s.1.1) b else bound_of s.1.1.
Definition V (s : state) p q := value_of s p q + p * s.2.

Lemma bound_regular a : (if a is Some t then ok t else True) -> regular (bound_of a).
Proof.
case: a => [t|_] /=; first exact: W_regular.
by split=> // p q p' _ _ p0; rewrite add0r.
Qed.

Lemma bound_pos a p q : (if a is Some t then ok t else True) -> 0 <= p -> 0 <= q -> 0 <= bound_of a p q.
Proof. by case: a => [t|] //= okt; apply: (f_pos W_family). Qed.

Lemma bound_hom a k p q : (if a is Some t then ok t else True) -> 0 <= k -> 0 <= p -> 0 <= q ->
  bound_of a (k * p) (k * q) <= k * bound_of a p q.
Proof. by case: a => [t|] //= okt; [apply: (f_hom W_family)|rewrite mulr0]. Qed.

(* [beyond] grows by at most the weight of P that is added. *)
Lemma beyond_lip h b p q p' : regular h -> 0 < b -> 0 <= p -> 0 <= q -> 0 <= p' ->
  beyond h b (p + p') q <= beyond h b p q + p'.
Proof.
move=> [mq mp lip] b0 p0 q0 p'0; rewrite /beyond.
have c0 : 0 <= q / b by rewrite divr_ge0 // ltW.
move: (q / b) c0 => c c0.
case: (leP p c) => pc; last first.
  have ppc : c <= p + p' by rewrite (le_trans (ltW pc)) // ler_addl.
  by rewrite (min_idPr ppc) le_eqVlt; apply/orP; left; apply/eqP; ring.
case: (leP (p + p') c) => ppc; first by rewrite !subrr !addr0; apply: lip.
have H : h c q <= h p q + (c - p).
  by have := lip p q (c - p) p0 q0; rewrite subr_ge0 addrC subrK; apply.
have -> : h p q + (p - p) + p' = h p q + (c - p) + (p + p' - c) by ring.
by rewrite ler_add2r.
Qed.

(* One charge, the sum still open. *)
Lemma open_step (h h' : R -> R -> R) b (c : charge) n (P Q : law R n) p q :
  regular h' -> (forall x y, 0 <= x -> 0 <= y -> 0 <= h' x y) -> h' 0 0 <= 0 ->
  (forall n (P1 Q1 : law R n), cls (asks c) P1 Q1 -> forall p q, 0 <= p -> 0 <= q ->
     \sum_i h' (p * P1 i) (q * Q1 i) <= h p q) ->
  1 <= factor c -> both_hold c P Q -> 1 <= b -> 0 <= p -> 0 <= q ->
  \sum_i beyond h' (b / factor c) (p * P i) (q * Q i) <= beyond h b p q + p * (fails c + own_delta c).
Proof.
move=> reg pos zero step r1 [[P1 [Q1 [e [G [c1 e0 ef HG HN]]]]] [k [k0 kd Hk]]] b1 p0 q0.
have b0 : 0 < b by apply: lt_le_trans b1.
have r0 : 0 < factor c by apply: lt_le_trans r1.
have br : 0 < b / factor c by rewrite divr_gt0.
pose p' := Num.min p (q / b).
have p'0 : 0 <= p' by rewrite /p' le_minr p0 divr_ge0 // ltW.
have p'p : p' <= p by rewrite /p' le_minl lexx.
(* What is left of P without the failures of either statement. *)
pose L i := if G i then Num.min (Num.min (P i) (P1 i)) (factor c * Q i) else 0.
have L0 i : 0 <= L i.
  by rewrite /L; case: ifP => // _; rewrite !le_minr !pr_ge0 /= mulr_ge0 ?pr_ge0 // ltW.
have LP i : L i <= P i.
  by rewrite /L; case: ifP => _; rewrite ?pr_ge0 // !le_minl lexx.
have LP1 i : L i <= P1 i.
  by rewrite /L; case: ifP => _; rewrite ?pr_ge0 // !le_minl lexx orbT.
have LQ i : L i <= factor c * Q i.
  rewrite /L; case: ifP => _; last by rewrite mulr_ge0 ?pr_ge0 // ltW.
  by rewrite !le_minl lexx !orbT.
have lost i : P i - L i <= e i + k i.
  rewrite /L; case: (boolP (G i)) => Gi; last first.
    by rewrite subr0 (le_trans (HN i Gi)) // ler_addl.
  have [HP _] := HG i Gi.
  rewrite ler_subl_addl -ler_subl_addr !le_minr; apply/andP; split; last first.
    by rewrite ler_subl_addr (le_trans (Hk i)) // ler_add2l ler_addr.
  apply/andP; split; first by rewrite ler_subl_addr ler_addl addr_ge0.
  by rewrite ler_subl_addr (le_trans HP) // ler_add2l ler_addl.
have cut i : p' * L i <= q * Q i / (b / factor c).
  apply: (@le_trans _ _ (q / b * (factor c * Q i))); last first.
    rewrite le_eqVlt; apply/orP; left; apply/eqP.
    by field; rewrite !gt_eqF.
  by apply: ler_pmul => //; rewrite /p' le_minl lexx orbT.
have one i : beyond h' (b / factor c) (p * P i) (q * Q i) <=
    h' (p' * P1 i) (q * Q1 i) + (p * P i - p' * L i).
  have rest0 : 0 <= p * P i - p' * L i by rewrite subr_ge0; apply: ler_pmul.
  have -> : p * P i = p' * L i + (p * P i - p' * L i) by rewrite addrC subrK.
  apply: (le_trans (beyond_lip reg br _ _ rest0)); rewrite ?mulr_ge0 ?pr_ge0 //.
  have -> : p' * L i + (p * P i - p' * L i) - p' * L i = p * P i - p' * L i by ring.
  rewrite ler_add2r /beyond (min_idPl (cut i)) subrr addr0.
  case: reg => mq mp _; case: (boolP (G i)) => Gi; last first.
    have -> : L i = 0 by rewrite /L (negbTE Gi).
    rewrite mulr0; apply: (@le_trans _ _ 0); last by rewrite pos ?mulr_ge0 ?pr_ge0.
    by apply: le_trans zero; apply: mq; rewrite ?mulr_ge0 ?pr_ge0.
  have [_ HQ] := HG i Gi.
  apply: (@le_trans _ _ (h' (p' * L i) (q * Q1 i))).
    by apply: mq; rewrite ?mulr_ge0 ?pr_ge0 // ler_wpmul2l.
  by apply: mp; rewrite ?mulr_ge0 ?pr_ge0 // ler_wpmul2l.
apply: (le_trans (ler_sum _ (fun i _ => one i))).
rewrite big_split /= sumrB -!mulr_sumr pr_sum mulr1.
have mass : \sum_i (P i - L i) <= fails c + own_delta c.
  apply: (le_trans (ler_sum _ (fun i _ => lost i))).
  by rewrite big_split /=; apply: ler_add.
have sumL : \sum_i L i = 1 - \sum_i (P i - L i) by rewrite sumrB pr_sum opprB addrCA subrr addr0.
rewrite sumL -/p' /beyond -/p' -addrA; apply: ler_add; first exact: step.
have -> : p - p' * (1 - \sum_i (P i - L i)) = p - p' + p' * \sum_i (P i - L i) by ring.
rewrite ler_add2l; apply: (@le_trans _ _ (p' * (fails c + own_delta c))); first by rewrite ler_wpmul2l.
apply: ler_wpmul2r => //; apply: le_trans mass; apply: sumr_ge0 => i _.
by rewrite subr_ge0.
Qed.

Lemma below_beyond h b p q : regular h -> 1 <= b -> 0 <= p -> 0 <= q -> h p q <= beyond h b p q.
Proof.
move=> [_ _ lip] b1 p0 q0; rewrite /beyond.
have c0 : 0 <= Num.min p (q / b) by rewrite le_minr p0 divr_ge0 // (le_trans ler01).
have rest : 0 <= p - Num.min p (q / b) by rewrite subr_ge0 le_minl lexx.
by have := lip _ q _ c0 q0 rest; rewrite [X in h X]addrC subrK.
Qed.

Lemma value_pos s p q : fine s -> 0 <= p -> 0 <= q -> 0 <= value_of s p q.
Proof.
case: s => [[a b] m] [/= _ oka b1 _] p0 q0; rewrite /value_of /=.
case: b b1 => [b|] b1; last exact: bound_pos.
have c0 : 0 <= q / b by rewrite divr_ge0 // (le_trans ler01).
by rewrite /beyond addr_ge0 ?bound_pos ?subr_ge0 ?le_minr ?p0 ?c0 // le_minl lexx.
Qed.

Theorem one_pool (D : Type) (nb : D -> D -> Prop) s0 u m
  (A : @analyst R charge both_hold D nb state may_take after (Some s0, Some u, m)) d d' S :
  ok s0 -> 1 <= u -> 0 <= m -> nb d d' -> Pr A d S <= u * Pr A d' S + (W s0 1 u + m).
Proof.
move=> oks u1 m0 dd'.
have u0 : 0 <= u by apply: le_trans u1.
have start : V (Some s0, Some u, m) 1 u = W s0 1 u + m.
  have un : u != 0 by rewrite gt_eqF // (lt_le_trans ltr01).
  by rewrite /V /value_of /= /beyond divff // minxx subrr addr0 mul1r.
rewrite -start; apply: (every_play_delta (ok := fine)) => //.
- move=> [[a b] m1] c [/= m10 oka b1 ab] [/= r1 tm ma mb]; split=> /=.
  + by rewrite subr_ge0.
  + case: (by_whom c) ma => //; case: a oka {ab} => // t okt mt; exact: (f_next W_family).
  + case: (by_whom c) mb => //; case: b b1 {ab} => // b b1 rb.
      by rewrite ler_pdivl_mulr ?mul1r // (lt_le_trans ltr01).
    by rewrite ler_pdivl_mulr ?mul1r // (lt_le_trans ltr01).
  + by case: (by_whom c) ma mb => //; case: a {oka ab} => //; case: b {b1}.
- move=> s p q sf p0 q0; rewrite /V addr_ge0 ?value_pos // mulr_ge0 //.
  by case: sf.
- move=> s p q sf p0 q0; rewrite /V; apply: (@le_trans _ _ (value_of s p q)); last first.
    by rewrite ler_addl mulr_ge0 //; case: sf.
  case: s sf => [[a b] m1] [/= _ oka b1 ab]; rewrite /value_of /=.
  case: b b1 ab => [b|] b1 ab; last first.
    by case: a oka ab => [t|] okt ab; [apply: (f_sub W_family)|case: (ab erefl)].
  have b0 : 0 < b by apply: lt_le_trans b1.
  have c0 : 0 <= q / b by rewrite divr_ge0 // ltW.
  have cq : q / b <= q by rewrite ler_pdivr_mulr // ler_pemulr.
  rewrite /beyond; case: (leP p (q / b)) => pc; last first.
    by rewrite -[p - q]add0r ler_add ?bound_pos // ler_sub.
  rewrite subrr addr0; apply: (@le_trans _ _ 0); last exact: bound_pos.
  by rewrite subr_le0 (le_trans pc).
- move=> s k p q sf k0 p0 q0; rewrite /V.
  have -> : k * (value_of s p q + p * s.2) = k * value_of s p q + k * p * s.2 by ring.
  rewrite ler_add2r.
  case: s sf => [[a b] m1] [/= _ oka b1 _]; rewrite /value_of /=.
  case: b b1 => [b|] b1; last exact: bound_hom.
  have c0 : 0 <= q / b by rewrite divr_ge0 // (le_trans ler01).
  rewrite /beyond -mulrA -minr_pmulr // -mulrBr [X in _ <= X]mulrDr ler_add2r.
  by apply: bound_hom; rewrite ?le_minr ?p0.
move=> [[a b] m1] c [/= m10 oka b1 ab] [/= r1 tm ma mb] n P Q cPQ p q p0 q0.
rewrite /V /= big_split /= -mulr_suml -mulr_sumr pr_sum mulr1.
have -> : p * m1 = p * taken c + p * (m1 - taken c) by ring.
rewrite addrA ler_add2r /value_of /taken /=.
have okn t : a = Some t -> may t (asks c) -> ok (next t (asks c)).
  by move=> e; move: oka; rewrite e => okt; exact: (f_next W_family).
have zero t : ok t -> W t 0 0 <= 0.
  by move=> okt; have := f_hom W_family okt (lexx 0) (lexx 0) (lexx 0); rewrite !mul0r.
case: (by_whom c) ma mb => [||].
- case: a oka okn {ab} => // t okt okn mt; case: b b1 => // b b1 rb.
  have okn' := okn t erefl mt; apply: (open_step _ _ _ _ r1 cPQ) => //=.
  + exact: W_regular.
  + by move=> x y x0 y0; apply: (f_pos W_family).
  + exact: zero.
  by move=> k P1 Q1 c1 x y x0 y0; apply: (f_step W_family okt mt).
- case: a oka okn {ab} => // t okt okn mt _.
  have okn' := okn t erefl mt; have [mq mp lip] := W_regular okn'.
  have hom k x y : 0 <= k -> 0 <= x -> 0 <= y ->
    W (next t (asks c)) (k * x) (k * y) <= k * W (next t (asks c)) x y.
    by move=> k0 x0 y0; apply: (f_hom W_family).
  have pos x y : 0 <= x -> 0 <= y -> 0 <= W (next t (asks c)) x y.
    by move=> x0 y0; apply: (f_pos W_family).
  have step : step_ok (fun _ : unit => cls (asks c)) tt (W (next t (asks c))) (W t).
    by move=> k P1 Q1; apply: (f_step W_family).
  have [good _] := cPQ.
  have := good_set_step 0 mq lip mp hom pos step good p0 q0.
  under eq_bigr do rewrite mulr0 addr0.
  rewrite addr0 => H; apply: (le_trans H); rewrite ler_add2r.
  case: b b1 => [b|] b1 //=; apply: below_beyond => //; exact: W_regular.
case: b b1 ab => // b b1 ab _ rb.
apply: (open_step _ _ _ _ r1 cPQ) => //=.
- exact: (@bound_regular None).
- by move=> k P1 Q1 c1 x y x0 y0; rewrite big1 ?bound_pos.
Qed.
End Pool.
